//! The HTTP client of everything that this process sends because its settings say so: batches to services, notices to
//! whoever wants to know.
//!
//! One client for all of them, so that they share connections; made when the first one needs it, because reading the
//! certificates of the system takes a moment. What it may connect to is the public internet and the operator's
//! exceptions (`[outbound] allow`); see `quell-fetch/src/guard.rs`.

use quell_fetch::Allow;

/// Makes the client once. Cheap until then.
#[derive(Debug, Default)]
pub struct Outbound {
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "nothing is sent without the client"))]
    allow: Allow,
    #[cfg(feature = "http")]
    http: std::sync::OnceLock<quell_fetch::Http>,
}

impl Outbound {
    /// For whoever may connect to the public internet and to these.
    pub fn new(allow: Allow) -> Self {
        Outbound {
            allow,
            #[cfg(feature = "http")]
            http: std::sync::OnceLock::new(),
        }
    }
}

#[cfg(feature = "http")]
mod client {
    use quell_core::limits;
    use quell_fetch::{CallError, Guard, Http, HttpSettings};

    use super::Outbound;

    /// Of an answer only its report and the beginning of its text are of use.
    const ANSWER_BYTES_MAX: usize = 64 * 1024;

    impl Outbound {
        /// The client; every call sets a time limit of its own. An error means that TLS cannot be set up.
        pub fn http(&self) -> Result<Http, CallError> {
            if let Some(http) = self.http.get() {
                return Ok(http.clone());
            }
            let settings = HttpSettings {
                timeout: limits::LEASE_MAX,
                body_bytes_max: ANSWER_BYTES_MAX,
                ..HttpSettings::default()
            };
            let made = Http::new(Guard::new(self.allow.clone()), &settings)?;
            Ok(self.http.get_or_init(|| made).clone())
        }
    }
}
