//! What the server promises, read back from it: a store is only as durable as its server is set up to be.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::Concern;
use quell_core::store::Durability;

use crate::options::Options;

/// What is known of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) version: String,
    /// Changes with every start.
    pub(crate) run_id: String,
    pub(crate) role: String,
    pub(crate) appendonly: Option<bool>,
    /// Unknown when the server does not tell its configuration.
    pub(crate) appendfsync: Option<String>,
    pub(crate) maxmemory_policy: Option<String>,
    pub(crate) used_memory: Option<String>,
    /// The server let us read its configuration.
    pub(crate) told: bool,
}

impl Settings {
    /// Reads `INFO`, which every server tells.
    pub(crate) fn of_info(info: &str) -> Self {
        let field = |name: &str| {
            let start = format!("{name}:");
            info.lines().find_map(|line| line.trim().strip_prefix(&start).map(str::to_owned))
        };
        let version = field("valkey_version").map(|v| format!("valkey {v}"));
        Settings {
            version: version.or_else(|| field("redis_version")).unwrap_or_default(),
            run_id: field("run_id").unwrap_or_default(),
            role: field("role").unwrap_or_default(),
            appendonly: field("aof_enabled").map(|enabled| enabled == "1"),
            appendfsync: None,
            maxmemory_policy: field("maxmemory_policy"),
            used_memory: field("used_memory_human"),
            told: false,
        }
    }

    /// Takes over what `CONFIG GET` told.
    pub(crate) fn configured(&mut self, name: &str, value: String) {
        self.told = true;
        match name {
            "appendonly" => self.appendonly = Some(value == "yes"),
            "appendfsync" => self.appendfsync = Some(value),
            "maxmemory-policy" => self.maxmemory_policy = Some(value),
            _ => {}
        }
    }

    /// Refuses a server on which accepted events could vanish.
    pub(crate) fn check(&self, options: &Options) -> StoreResult<()> {
        let place = options.place();
        if self.role != "master" {
            let role = if self.role.is_empty() { "not known" } else { &self.role };
            return Err(StoreError::unavailable(format!(
                "the role of {place} is {role}: connect to the primary; a replica cannot store anything"
            )));
        }
        if let Some(policy) = self.maxmemory_policy.as_deref().filter(|policy| *policy != "noeviction") {
            let text = format!(
                "{place} removes keys when its memory is full (maxmemory-policy {policy}), also those of accepted \
                 events; run: CONFIG SET maxmemory-policy noeviction, and write it into its configuration file"
            );
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        if self.told && self.appendonly == Some(false) && !options.best_effort {
            let text = format!(
                "{place} keeps no log of its writes (appendonly no): accepted events would be lost when it stops; run: \
                 CONFIG SET appendonly yes, and write it into its configuration file; or accept the loss with \
                 ?durability=besteffort"
            );
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        Ok(())
    }

    pub(crate) fn durability(&self) -> Durability {
        let less = |text: &str| Durability::BestEffort(text.to_owned());
        match (self.appendonly, self.appendfsync.as_deref()) {
            (Some(false), _) => less("no log is kept: what was acknowledged is lost when the server stops"),
            (Some(true), Some("always")) => Durability::Durable,
            (Some(true), Some("everysec")) => {
                less("up to one second of acknowledged events may be lost when the server's machine fails")
            }
            (Some(true), Some(_)) => {
                less("the operating system decides when the log is written to disk (appendfsync no)")
            }
            _ => less("the server does not tell how it writes to disk"),
        }
    }

    /// What an operator should look at.
    pub(crate) fn warnings(&self) -> Vec<Concern> {
        let mut warnings = Vec::new();
        if !self.told {
            warnings.push(Concern::new(
                "the server does not let us read its configuration (CONFIG GET)",
                "make sure that appendonly is yes, appendfsync always or everysec, and maxmemory-policy noeviction",
            ));
        }
        if let Durability::BestEffort(text) = self.durability()
            && self.told
        {
            let fix = match self.appendonly {
                Some(true) => {
                    "CONFIG SET appendfsync always closes the gap; write it into its configuration file, too"
                }
                _ => "CONFIG SET appendonly yes, and write it into its configuration file",
            };
            warnings.push(Concern::new(text, fix));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
        let info = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n";
        let mut settings = Settings::of_info(info);
        settings.configured("appendonly", "yes".into());
        settings.configured("appendfsync", "always".into());
        change(&mut settings);
        settings
    }

    fn options(url: &str) -> Options {
        Options::parse(url).unwrap()
    }

    #[test]
    fn a_server_that_keeps_its_word_is_durable() {
        let good = settings(|_| ());
        assert!(good.check(&options("redis://h")).is_ok());
        assert_eq!(good.durability(), Durability::Durable);
        assert!(good.warnings().is_empty());
    }

    #[test]
    fn a_server_that_may_lose_events_is_refused_with_the_line_that_helps() {
        let evicts = settings(|s| s.maxmemory_policy = Some("allkeys-lru".into()));
        let text = evicts.check(&options("redis://h")).unwrap_err().detail;
        assert!(text.contains("CONFIG SET maxmemory-policy noeviction"), "{text}");
        let no_log = settings(|s| s.appendonly = Some(false));
        let text = no_log.check(&options("redis://h")).unwrap_err().detail;
        assert!(text.contains("CONFIG SET appendonly yes") && text.contains("besteffort"), "{text}");
        assert!(no_log.check(&options("redis://h?durability=besteffort")).is_ok());
        let replica = settings(|s| s.role = "slave".into());
        assert!(replica.check(&options("redis://h")).unwrap_err().detail.contains("primary"));
    }

    #[test]
    fn what_is_less_than_durable_is_said() {
        let everysec = settings(|s| s.appendfsync = Some("everysec".into()));
        let Durability::BestEffort(text) = everysec.durability() else { panic!("not durable") };
        assert!(text.contains("one second"), "{text}");
        let silent = Settings::of_info("redis_version:7\nrole:master\naof_enabled:0\n");
        assert!(
            silent.check(&options("redis://h")).is_ok(),
            "a managed server is not refused for its silence"
        );
        assert!(silent.warnings()[0].text.contains("CONFIG GET"));
    }
}
