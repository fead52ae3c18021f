//! `cargo xtask advisories`: is anything known against a dependency, and how old is what is known?
//!
//! Not part of `test`: the data come from the network, and the same commit must get the same verdict with and without one.
//! Without the data there is no verdict at all, and that is said and is a failure: silence would look like good news.

use std::path::{Path, PathBuf};

use crate::report::Verdict;
use crate::{Place, deny, process};

/// Where `deny.toml` lets the data be kept: below the tools, so that nothing outside of the checkout is used.
const FOLDER: &str = "target/tools/advisory-db";

/// Older data are no answer: a hole is published on most days.
const DAYS_MAX: u32 = 14;

/// Fetches the data if it can, says how old they are, and judges by them.
pub(crate) fn check(place: &Place) -> anyhow::Result<Verdict> {
    let program = match deny::program(place)? {
        Ok(program) => program,
        Err(reason) => return Ok(Verdict::Failed(reason)),
    };
    let mut fetch = place.command(&program);
    fetch.args(["fetch", "db"]);
    let fetched = process::stream(fetch)?;
    let Some(data) = clone_in(&place.root.join(FOLDER)) else {
        println!("{}", nothing());
        return Ok(Verdict::Failed("there are no advisory data".to_owned()));
    };
    let told = |format: &str, since: Option<u32>| {
        let mut command = place.command("git");
        command.arg("-C").arg(&data).args(["log", "-1", format]);
        command.args(since.map(|days| format!("--since={days}.days")));
        process::capture(command).map(|text| String::from_utf8_lossy(&text).trim().to_owned())
    };
    println!("the advisory data are of {}, {}", told("--format=%cs", None)?, told("--format=%cr", None)?);
    if told("--format=%H", Some(DAYS_MAX))?.is_empty() {
        println!("{}", old(fetched == Verdict::Ok));
        return Ok(Verdict::Failed(format!("the advisory data are older than {DAYS_MAX} days")));
    }
    let mut command = place.command(&program);
    command.args(["--offline", "check", "advisories"]);
    process::stream(command)
}

/// The folder of the data, which cargo-deny names after their address.
fn clone_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries.filter_map(Result::ok).map(|entry| entry.path()).find(|path| path.join(".git").exists())
}

fn nothing() -> String {
    format!(
        "No verdict: the database of advisories cannot be had. It is a git repository, \
         https://github.com/RustSec/advisory-db, and could not be fetched (see above), and there is no earlier copy in \
         {FOLDER}.\nRun this where that address can be reached, or bring the folder {FOLDER} along from such a place."
    )
}

fn old(fetched: bool) -> String {
    let why =
        if fetched { "its latest entry is that old" } else { "it could not be fetched anew (see above)" };
    format!(
        "No verdict: this copy of the database of advisories is older than {DAYS_MAX} days; {why}.\nRun this where \
         https://github.com/RustSec/advisory-db can be reached, or bring a newer {FOLDER} along from such a place."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_without_data_is_said() {
        for text in [nothing(), old(false), old(true)] {
            assert!(
                text.contains("No verdict") && text.contains("RustSec/advisory-db") && text.contains(FOLDER),
                "{text}"
            );
        }
    }

    #[test]
    fn a_folder_without_a_clone_is_no_data() {
        assert_eq!(clone_in(Path::new("no/such/folder")), None);
        assert_eq!(clone_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")), None);
    }
}
