//! The part `deny`: is every dependency one we agreed to?
//!
//! `deny.toml` says what is agreed, the program cargo-deny judges. A fresh machine does not have it, so it is
//! installed at one pinned version below `target/tools`, where `cargo clean` removes it with everything else. The
//! same version on the search path is used as it is, which spares the build to those who have it.
//!
//! It is built without the link-time optimisation its authors publish it with: the check takes a second either
//! way, and the build takes half the time (about 75 s instead of 143 s on two cores).
//!
//! Advisories are left out on purpose. Their database is fetched from the network, and the same commit must get the
//! same verdict with and without one: `advisories.rs` is a command of its own.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::report::Verdict;
use crate::{Place, process};

const VERSION: &str = "0.20.2";

/// Checks bans, licences and sources, installing the checker first if need be.
pub(crate) fn check(place: &Place) -> anyhow::Result<Verdict> {
    let program = match program(place)? {
        Ok(program) => program,
        Err(reason) => return Ok(Verdict::Failed(reason)),
    };
    let mut command = place.command(program);
    command.args(["check", "bans", "licenses", "sources"]);
    process::stream(command)
}

/// The checker, installed if need be; or why there is none.
pub(crate) fn program(place: &Place) -> anyhow::Result<Result<OsString, String>> {
    let own = place.root.join("target/tools/bin/cargo-deny").into_os_string();
    let candidates = [own.clone(), OsString::from("cargo-deny")];
    Ok(match candidates.into_iter().find(|program| is_wanted_version(place, program)) {
        Some(program) => Ok(program),
        None => match install(place)? {
            Verdict::Ok => Ok(own),
            Verdict::Failed(reason) => Err(format!("cannot install cargo-deny: {reason}")),
        },
    })
}

fn install(place: &Place) -> anyhow::Result<Verdict> {
    println!("cargo-deny {VERSION} is not here yet; installing it takes a minute or two");
    let mut command = place.cargo(&["install", "--locked", "--root", "target/tools"]);
    command.arg(format!("cargo-deny@{VERSION}"));
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    process::stream(command)
}

/// A program that cannot be started at all is simply not there.
fn is_wanted_version(place: &Place, program: &OsString) -> bool {
    let mut command: Command = place.command(program);
    let answer = command.arg("--version").stderr(Stdio::null()).output();
    answer.is_ok_and(|answer| answer.status.success() && is_version(&answer.stdout))
}

fn is_version(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).split_whitespace().eq(["cargo-deny", VERSION])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pinned_version_is_used() {
        assert!(is_version(format!("cargo-deny {VERSION}\n").as_bytes()));
        assert!(!is_version(b"cargo-deny 0.1.0\n"));
        assert!(!is_version(format!("cargo-deny {VERSION}-rc1").as_bytes()));
        assert!(!is_version(b""));
    }
}
