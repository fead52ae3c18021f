//! The part `library`: can others build on the crate `quell`?
//!
//! Its features are tried one by one, because in the workspace they are all on and a missing `cfg` would show nowhere: without
//! any, with the default, and with each of the others alone. Then its documentation is made, with that of the crates that it
//! shows to its users: every link leads somewhere. That every public item has a text is a lint of these crates (`clippy`).
//!
//! Only types are checked and nothing is linked, so this takes seconds once the dependencies have been looked at.

use crate::report::Verdict;
use crate::{Place, process};

/// Sets of features that a program may ask for.
const FEATURES: [&str; 6] = ["", "sqlite", "postgres", "redis", "http", "testing"];
/// The crates whose items a user of the library meets.
const DOCUMENTED: [&str; 7] = [
    "quell",
    "quell-core",
    "quell-fetch",
    "quell-webhook",
    "quell-store-sqlite",
    "quell-store-postgres",
    "quell-store-redis",
];

pub(crate) fn check(place: &Place) -> anyhow::Result<Verdict> {
    for features in FEATURES {
        println!("quell with {}", if features.is_empty() { "no feature" } else { features });
        let mut command = place.cargo(&["clippy", "--quiet", "--package", "quell", "--no-default-features"]);
        command.args(["--features", features, "--", "-D", "warnings"]);
        if let Verdict::Failed(reason) = process::stream(command)? {
            return Ok(Verdict::Failed(format!("with the features {features:?}: {reason}")));
        }
    }
    println!("its documentation");
    let mut command = place.cargo(&["doc", "--quiet", "--no-deps"]);
    command.args(DOCUMENTED.iter().flat_map(|name| ["--package", name]));
    command
        .args(["--features", "quell/postgres,quell/redis,quell/http,quell/testing"])
        .env("RUSTDOCFLAGS", "-D warnings");
    process::stream(command)
}
