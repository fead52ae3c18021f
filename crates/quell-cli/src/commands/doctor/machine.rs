//! What the machine under a store has to say: room on the disk, and who may read the file.

use std::path::PathBuf;

use quell::config::{StoreChoice, StoreKind};
use serde::Serialize;

use super::{Finding, problem, warning};
use crate::output::Facts;
use crate::times;

/// Below this the next burst may be refused.
const FREE_BYTES_PROBLEM: u64 = 64 * 1024 * 1024;
/// Below this, and below a twentieth of the disk, it is time to look.
const FREE_BYTES_WARNING: u64 = 1024 * 1024 * 1024;

#[derive(Debug, Default, Serialize)]
pub(super) struct Machine {
    /// The file of the store, if it is one.
    file: Option<PathBuf>,
    /// As in `chmod`, such as `600`.
    mode: Option<String>,
    free_bytes: Option<u64>,
    total_bytes: Option<u64>,
}

impl Machine {
    pub(super) fn look(store: &StoreChoice) -> Machine {
        let StoreKind::Sqlite(path) = store.url.kind() else { return Machine::default() };
        let (free_bytes, total_bytes) = disk(path).unzip();
        Machine { mode: mode(path), file: Some(path.clone()), free_bytes, total_bytes }
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        let (Some(free), Some(total)) = (self.free_bytes, self.total_bytes) else { return Vec::new() };
        let text = format!(
            "only {} are free on the store's disk; events are refused when it is full",
            times::bytes(free)
        );
        let fix = "remove what is not needed there, or shorten `retention`: `quell doctor` shows what the file holds";
        if free < FREE_BYTES_PROBLEM {
            vec![problem(text, fix)]
        } else if free < FREE_BYTES_WARNING && free < total / 20 {
            vec![warning(text, fix)]
        } else {
            Vec::new()
        }
    }

    pub(super) fn tell(&self, facts: &mut Facts) {
        facts.add_some("file mode", self.mode.clone());
        if let (Some(free), Some(total)) = (self.free_bytes, self.total_bytes) {
            facts.add("disk", format!("{} free of {}", times::bytes(free), times::bytes(total)));
        }
    }
}

#[cfg(unix)]
fn disk(path: &std::path::Path) -> Option<(u64, u64)> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
}

#[cfg(unix)]
fn mode(path: &std::path::Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    Some(format!("{mode:o}"))
}

#[cfg(not(unix))]
fn disk(_path: &std::path::Path) -> Option<(u64, u64)> {
    None
}

#[cfg(not(unix))]
fn mode(_path: &std::path::Path) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn level(free: u64, total: u64) -> Option<Level> {
        let machine = Machine { free_bytes: Some(free), total_bytes: Some(total), ..Machine::default() };
        machine.findings().first().map(|finding| finding.level)
    }

    #[test]
    fn a_disk_is_judged_by_what_is_free() {
        let gib = 1 << 30;
        assert_eq!(level(100 * gib, 200 * gib), None);
        assert_eq!(level(gib / 2, 200 * gib), Some(Level::Warning));
        assert_eq!(level(gib / 2, 2 * gib), None, "a quarter of a small disk is plenty");
        assert_eq!(level(gib / 100, 2 * gib), Some(Level::Problem));
    }
}
