//! The built-in handlers, and the way from a queue's settings to one.
//!
//! `log` writes a line and succeeds; `exec` starts a program for each batch; `http` sends each batch to a service. A queue
//! with the handler `pull` has none here: workers elsewhere claim its lanes. Handlers written in Rust are given to the
//! worker directly.

pub mod exec;
#[cfg(feature = "http")]
pub mod http;
pub mod log;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_fetch::Refused;

use crate::config::{HandlerSettings, PushSettings, Settings};
use crate::handler::Handler;
use crate::outbound::Outbound;
use crate::secrets::SecretError;

/// Why settings that are good by themselves make no handler in this process.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// A secret that the settings name cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The address of a service is none that batches may be sent to.
    #[error("the URL of the handler: {0}")]
    Url(#[from] Refused),
    /// TLS cannot be set up, most likely.
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
    /// Only programs that build the library with features of their own meet it: the binary has all of them.
    #[error(
        "a handler `http` needs the feature `http` of the crate `quell`, which this program was built without"
    )]
    NoClient,
}

/// The handler that a queue's settings name, or nothing for `pull` and for applications. `env` is the environment of this process, where
/// secrets are found and of which programs receive an allow-list.
pub fn from_settings(
    settings: &HandlerSettings,
    env: &BTreeMap<String, String>,
    outbound: &Outbound,
) -> Result<Option<Arc<dyn Handler>>, HandlerError> {
    Ok(match settings {
        HandlerSettings::Log => Some(Arc::new(log::Log)),
        HandlerSettings::Pull | HandlerSettings::App => None,
        HandlerSettings::Exec(exec) => Some(Arc::new(exec::Exec::new(exec.clone(), env))),
        HandlerSettings::Http(settings) => Some(push(settings, env, outbound)?),
    })
}

#[cfg(feature = "http")]
fn push(
    settings: &PushSettings,
    env: &BTreeMap<String, String>,
    outbound: &Outbound,
) -> Result<Arc<dyn Handler>, HandlerError> {
    Ok(Arc::new(http::Push::from_settings(settings, env, outbound)?))
}

#[cfg(not(feature = "http"))]
fn push(
    _: &PushSettings,
    _: &BTreeMap<String, String>,
    _: &Outbound,
) -> Result<Arc<dyn Handler>, HandlerError> {
    Err(HandlerError::NoClient)
}

/// What would keep a worker with these settings and this environment from its start, in full sentences.
pub fn problems(settings: &Settings, env: &BTreeMap<String, String>) -> Vec<String> {
    let outbound = Outbound::new(settings.outbound.clone());
    let problem = |queue: &crate::config::QueueSettings| {
        let error = from_settings(&queue.handler, env, &outbound).err()?;
        Some(format!("queue {}: {error}, so a worker with this environment does not start", queue.name))
    };
    settings.queues.values().filter_map(|queue| problem(queue)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExecSettings;

    #[test]
    fn a_pull_queue_has_no_handler_here() {
        let (none, outbound) = (BTreeMap::new(), Outbound::default());
        let made = |settings: &HandlerSettings| from_settings(settings, &none, &outbound).unwrap().is_some();
        assert!(!made(&HandlerSettings::Pull));
        assert!(made(&HandlerSettings::Log));
        assert!(made(&HandlerSettings::Exec(ExecSettings::new(["true"]))));
        assert!(made(&HandlerSettings::Http(PushSettings::new("https://example.com/"))));
    }
}
