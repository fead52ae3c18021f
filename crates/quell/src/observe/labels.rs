//! Labels whose values are names that users choose. Without a configuration any name is a queue, and a label is for ever, so
//! there is a bound.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names that are counted by themselves.
const LABELS_MAX: usize = 100;

/// The first hundred names have a label of their own, all others are counted together.
pub(super) struct Labels(Mutex<BTreeSet<&'static str>>);

pub(super) static QUEUES: Labels = Labels(Mutex::new(BTreeSet::new()));
pub(super) static SOURCES: Labels = Labels(Mutex::new(BTreeSet::new()));

impl Labels {
    pub(super) fn of(&self, name: &str) -> &'static str {
        let mut known = self.locked();
        if let Some(label) = known.get(name) {
            return label;
        }
        if known.len() >= LABELS_MAX {
            return "other";
        }
        // A hundred short names live as long as the process.
        let label: &'static str = Box::leak(name.to_owned().into_boxed_str());
        known.insert(label);
        label
    }

    /// All labels so far.
    pub(super) fn known(&self) -> Vec<&'static str> {
        let known = self.locked();
        let other = (known.len() >= LABELS_MAX).then_some("other");
        known.iter().copied().chain(other).collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeSet<&'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hundred_and_first_name_is_counted_with_all_others() {
        let labels = Labels(Mutex::new(BTreeSet::new()));
        for n in 0..LABELS_MAX {
            assert_eq!(labels.of(&format!("q{n}")), format!("q{n}"));
        }
        assert_eq!(labels.of("one-more"), "other");
        assert_eq!(labels.of("q7"), "q7", "those that had one keep it");
        assert_eq!(labels.known().len(), LABELS_MAX + 1);
    }
}
