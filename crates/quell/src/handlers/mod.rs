//! The built-in handlers, and the way from a queue's settings to one.
//!
//! `log` writes a line and succeeds; `exec` starts a program for each batch. A queue with the handler `pull` has none
//! here: workers elsewhere claim its lanes. Handlers written in Rust are given to the worker directly.

pub mod exec;
pub mod log;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::HandlerSettings;
use crate::handler::Handler;

/// The handler that a queue's settings name, or nothing for `pull`. `env` is the environment of this process, of which
/// programs receive an allow-list.
pub fn from_settings(settings: &HandlerSettings, env: &BTreeMap<String, String>) -> Option<Arc<dyn Handler>> {
    match settings {
        HandlerSettings::Log => Some(Arc::new(log::Log)),
        HandlerSettings::Pull => None,
        HandlerSettings::Exec(exec) => Some(Arc::new(exec::Exec::new(exec.clone(), env))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExecSettings;

    #[test]
    fn a_pull_queue_has_no_handler_here() {
        let none = BTreeMap::new();
        assert!(from_settings(&HandlerSettings::Pull, &none).is_none());
        assert!(from_settings(&HandlerSettings::Log, &none).is_some());
        assert!(from_settings(&HandlerSettings::Exec(ExecSettings::new(["true"])), &none).is_some());
    }
}
