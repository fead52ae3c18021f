//! Do all processes run with the same settings? Each tells what its settings come to, queue by queue; here they are compared.
//!
//! A process that was forgotten when the file changed still closes windows and retries by the old rules, and nothing else
//! shows it: every claim carries the policy of the process that makes it.

use std::collections::{BTreeMap, BTreeSet};

use quell::Presence;

use super::{Finding, warning};

/// Processes of one kind that are named; a fleet is not a sentence.
const NAMED: usize = 4;

/// What the settings in this folder come to, if a file says them.
pub(super) type Own = Option<BTreeMap<String, String>>;

pub(super) fn findings(workers: &[Presence], own: &Own) -> Vec<Finding> {
    let mut found = Vec::new();
    let queues: BTreeSet<&String> = workers.iter().flat_map(|about| about.settings.keys()).collect();
    for queue in queues {
        let mut kinds: BTreeMap<&String, Vec<&Presence>> = BTreeMap::new();
        for about in workers {
            if let Some(print) = about.settings.get(queue) {
                kinds.entry(print).or_default().push(about);
            }
        }
        let here = own.as_ref().and_then(|own| own.get(queue));
        found.extend(of_queue(queue, &kinds, here));
    }
    let versions: BTreeSet<&str> = workers.iter().map(|about| about.version.as_str()).collect();
    if versions.len() > 1 {
        let list: Vec<&str> = versions.into_iter().collect();
        let text = format!("processes of different versions work here: {}", list.join(", "));
        found.push(warning(text, "restart the older ones with the newest program"));
    }
    found
}

fn of_queue(
    queue: &str,
    kinds: &BTreeMap<&String, Vec<&Presence>>,
    here: Option<&String>,
) -> Option<Finding> {
    let name = if queue == "*" { "queues without a file".to_owned() } else { format!("queue {queue}") };
    if kinds.len() > 1 {
        let groups: Vec<String> = kinds.values().map(|group| named(group)).collect();
        let text =
            format!("{name}: processes run with different settings: {}", groups.join(" on one side, "));
        let fix = "give all of them the same quell.toml, then `kill -HUP` them or POST /v1/reload; `quell check` shows \
                   what a file means";
        return Some(warning(text, fix));
    }
    let (print, group) = kinds.first_key_value()?;
    let differs = here.is_some_and(|here| here != *print);
    differs.then(|| {
        let text = format!("{name}: the file here says something else than {} runs with", named(group));
        warning(text, "if this file is the right one, reload them: `kill -HUP`, or POST /v1/reload")
    })
}

fn named(group: &[&Presence]) -> String {
    let name = |about: &&Presence| format!("{} (pid {})", about.worker, about.pid);
    let mut names: Vec<String> = group.iter().take(NAMED).map(name).collect();
    if group.len() > NAMED {
        names.push(format!("{} more", group.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use quell::quell_core::clock::Timestamp;

    use super::*;

    fn worker(name: &str, pid: u32, settings: &[(&str, &str)]) -> Presence {
        Presence {
            worker: name.to_owned(),
            pid,
            id: format!("{name}:{pid}:1"),
            version: "0.1.0".to_owned(),
            state: "idle".to_owned(),
            concurrency: 20,
            queues: None,
            tenant: None,
            started_at: Timestamp::from_millis(0),
            settings: prints(settings),
        }
    }

    fn prints(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
        settings.iter().map(|(queue, print)| ((*queue).to_owned(), (*print).to_owned())).collect()
    }

    #[test]
    fn the_queue_and_the_processes_are_named() {
        let workers = [
            worker("a", 1, &[("chat", "x"), ("jobs", "y")]),
            worker("b", 2, &[("chat", "z"), ("jobs", "y")]),
        ];
        let found = findings(&workers, &None);
        assert_eq!(found.len(), 1);
        let text = &found[0].text;
        assert!(
            text.contains("queue chat") && text.contains("a (pid 1)") && text.contains("b (pid 2)"),
            "{text}"
        );
        assert!(found[0].fix.contains("reload"), "{:?}", found[0]);
    }

    #[test]
    fn equal_settings_and_processes_that_tell_nothing_are_no_finding() {
        let workers =
            [worker("a", 1, &[("chat", "x")]), worker("b", 2, &[("chat", "x")]), worker("old", 3, &[])];
        assert!(findings(&workers, &None).is_empty());
        assert!(findings(&workers, &Some(prints(&[("chat", "x"), ("other", "q")]))).is_empty());
        assert!(findings(&[], &Some(prints(&[("chat", "x")]))).is_empty());
    }

    #[test]
    fn a_file_that_nobody_has_read_again_is_a_finding() {
        let found = findings(&[worker("a", 1, &[("chat", "x")])], &Some(prints(&[("chat", "new")])));
        assert!(found[0].text.contains("the file here"), "{:?}", found[0]);
    }

    #[test]
    fn a_fleet_is_counted_and_other_versions_are_told() {
        let mut workers: Vec<Presence> = (0..9).map(|n| worker("w", n, &[("chat", "x")])).collect();
        workers.push(Presence { version: "0.2.0".to_owned(), ..worker("new", 99, &[("chat", "y")]) });
        let found = findings(&workers, &None);
        assert!(found[0].text.contains("5 more"), "{:?}", found[0]);
        assert!(found[1].text.contains("0.1.0, 0.2.0"), "{:?}", found[1]);
    }
}
