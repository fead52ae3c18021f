//! What the settings of a queue come to, as a short text: processes that run with different ones are told apart by it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use quell_core::event::QueueName;
use sha2::{Digest, Sha256};

use super::Settings;

/// Queues of which a process tells: what a worker says of itself is one small document.
const QUEUES_MAX: usize = 64;
/// Not a matter of taste between processes: how many lanes one of them works on is its own.
const OWN: &str = "concurrency";

impl Settings {
    /// A fingerprint for each queue of the configuration, by name; `*` stands for queues of any name. Only for the first ones
    /// by name, where there are very many.
    pub fn fingerprints(&self) -> BTreeMap<String, String> {
        let mut names: Vec<&str> = self.queues.keys().map(QueueName::as_str).collect();
        names.extend(self.default_queue.as_ref().map(|_| "*"));
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for line in &self.explained {
            if let Some((name, setting)) = of_queue(&names, &line.setting)
                && setting != OWN
            {
                let _ = writeln!(texts.entry(name).or_default(), "{setting} = {}", line.value);
            }
        }
        texts.into_iter().take(QUEUES_MAX).map(|(name, text)| (name.to_owned(), digest(&text))).collect()
    }
}

/// The queue and the setting of a path. Names have dots: of two that fit, the longer one is meant.
fn of_queue<'a, 'p>(names: &[&'a str], path: &'p str) -> Option<(&'a str, &'p str)> {
    let rest = path.strip_prefix("queues.")?;
    let fits = names.iter().filter_map(|name| Some((*name, rest.strip_prefix(name)?.strip_prefix('.')?)));
    fits.max_by_key(|(name, _)| name.len())
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Flags, SettingsInput, SourceText};
    use super::*;

    fn prints(text: &str) -> BTreeMap<String, String> {
        let config = Config::parse(text, "quell.toml").unwrap();
        let source = SourceText { name: "quell.toml".into(), text: text.into() };
        let env = BTreeMap::new();
        let input = SettingsInput { config: Some((config, source)), env: &env, flags: Flags::default() };
        Settings::resolve(input).unwrap().fingerprints()
    }

    #[test]
    fn equal_settings_have_equal_fingerprints_wherever_they_stand() {
        let one = prints("[queues.chat]\nlease = \"30s\"\n[queues.\"chat.eu\"]\n");
        let other =
            prints("# moved\n\n[queues.\"chat.eu\"]\nconcurrency = 3\n[queues.chat]\nlease = \"30s\"\n");
        assert_eq!(one, other, "neither the line nor the number of lanes at once makes a difference");
        assert_eq!(one.keys().collect::<Vec<_>>(), ["chat", "chat.eu"]);
        assert_ne!(one["chat"], one["chat.eu"]);
    }

    #[test]
    fn a_changed_setting_changes_the_fingerprint_of_its_queue_alone() {
        let before = prints("[queues.chat]\n[queues.\"chat.eu\"]\n");
        let after = prints("[queues.chat]\n[queues.\"chat.eu\"]\nwindow = { quiet = \"9s\" }\n");
        assert_eq!(before["chat"], after["chat"]);
        assert_ne!(before["chat.eu"], after["chat.eu"]);
    }

    #[test]
    fn without_a_file_there_is_one_for_queues_of_any_name() {
        let env = BTreeMap::new();
        let input = SettingsInput { config: None, env: &env, flags: Flags::default() };
        let prints = Settings::resolve(input).unwrap().fingerprints();
        assert_eq!(prints.keys().collect::<Vec<_>>(), ["*"]);
    }
}
