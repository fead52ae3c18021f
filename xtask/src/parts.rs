//! What a change is judged by: the parts of `cargo xtask test`, in their order.
//!
//! The cheap and common mistakes come first (layout, lints), the long work last. A part that fails does not stop
//! the later ones, so one run tells everything that is wrong; the verdict is bad as soon as one part is. A run in
//! which `tests` executed no test at all is bad too: silence proves nothing, and a mistyped filter would look like
//! success.
//!
//! Each part streams its output as it goes. `report.rs` words the summary, `tally.rs` counts the tests.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failures::Failures;
use crate::report::{Line, Verdict};
use crate::servers::Servers;
use crate::tally::Tally;
use crate::{Place, api, clients, deny, docs, library, process, report};

/// One named piece of the judgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Fmt,
    Clippy,
    Deny,
    Build,
    Tests,
    Api,
    Clients,
    Doc,
    Library,
    Docs,
}

/// Which parts to run (none named: all), and what to hand on to `cargo test`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) parts: Vec<Part>,
    pub(crate) test_args: Vec<String>,
}

impl Part {
    pub(crate) const ALL: [Self; 10] = [
        Self::Fmt,
        Self::Clippy,
        Self::Deny,
        Self::Build,
        Self::Tests,
        Self::Api,
        Self::Clients,
        Self::Doc,
        Self::Library,
        Self::Docs,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Clippy => "clippy",
            Self::Deny => "deny",
            Self::Build => "build",
            Self::Tests => "tests",
            Self::Api => "api",
            Self::Clients => "clients",
            Self::Doc => "doc",
            Self::Library => "library",
            Self::Docs => "docs",
        }
    }

    pub(crate) fn explain(self) -> &'static str {
        match self {
            Self::Fmt => "the layout is what rustfmt makes of it",
            Self::Clippy => "no compiler or clippy warning anywhere",
            Self::Deny => "dependencies: licences, banned crates, where they come from",
            Self::Build => "everything compiles, examples and benches too",
            Self::Tests => "unit and integration tests, beside the servers that stores need",
            Self::Api => "the server keeps to its own document, whatever schemathesis sends",
            Self::Clients => "the clients for Python and Node: installed as users do, against a real server",
            Self::Doc => "the programs inside the documentation comments",
            Self::Library => {
                "the crate `quell` with each of its features alone, and its documentation without a warning"
            }
            Self::Docs => {
                "links in Markdown files resolve, programs in them are files, every dependency has its reason; no path of one machine is mentioned"
            }
        }
    }

    pub(crate) fn named(name: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|part| part.name()).collect();
            anyhow::anyhow!("there is no part `{name}` (parts: {})", known.join(", "))
        })
    }
}

/// Runs the selected parts in their fixed order, prints the summary, and says whether all is well.
pub(crate) fn run(place: &Place, selection: &Selection) -> anyhow::Result<bool> {
    let mut lines = Vec::new();
    for part in Part::ALL {
        if !selection.parts.is_empty() && !selection.parts.contains(&part) {
            continue;
        }
        println!("\n== {}: {}", part.name(), part.explain());
        let since = now();
        let Outcome { verdict, tally, failures } = run_part(place, part, &selection.test_args)
            .unwrap_or_else(|error| Outcome::plain(Verdict::Failed(format!("{error:#}"))));
        let line = Line { name: part.name(), took: since.elapsed(), verdict, tally, failures };
        println!("== {}", line.summary());
        lines.push(line);
    }
    print!("{}", report::closing(&lines));
    Ok(lines.iter().all(|line| line.verdict == Verdict::Ok))
}

/// How a part ended; a tally only where tests ran.
struct Outcome {
    verdict: Verdict,
    tally: Option<Tally>,
    failures: Failures,
}

impl Outcome {
    fn plain(verdict: Verdict) -> Self {
        Self { verdict, tally: None, failures: Failures::default() }
    }
}

fn tests(command: Command) -> anyhow::Result<Outcome> {
    let (verdict, tally, failures) = process::stream_tests(command)?;
    Ok(Outcome { verdict, tally: Some(tally), failures })
}

/// The second compilations of packages under another configuration. Their own tests are those of the first; with `--all-targets` cargo
/// would build them whatever the manifests say.
const COMPILED_TWICE: [&str; 4] =
    ["quell-core-mutants", "quell-store-many-mutants", "quell-store-tests-mutants", "quell-torture-mutants"];

/// How many tests run at once, unless the caller says it.
const THREADS: &str = "RUST_TEST_THREADS";

/// More than there are processors: most of the long tests wait, for a window, a lease or a server, and leave half of two
/// processors idle.
fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    processors + processors.div_ceil(2)
}

/// The one place that decides what each part means.
fn run_part(place: &Place, part: Part, test_args: &[String]) -> anyhow::Result<Outcome> {
    let plain = |args: &[&str]| process::stream(place.cargo(args)).map(Outcome::plain);
    match part {
        Part::Fmt => plain(&["fmt", "--all", "--check"]),
        Part::Clippy => plain(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Part::Deny => deny::check(place).map(Outcome::plain),
        Part::Build => plain(&["build", "--workspace", "--all-targets"]),
        Part::Tests => {
            let mut command = place.cargo(&["test", "--workspace", "--all-targets", "--no-fail-fast"]);
            command.args(COMPILED_TWICE.iter().flat_map(|package| ["--exclude", package]));
            command.args(test_args);
            if std::env::var_os(THREADS).is_none() {
                command.env(THREADS, threads().to_string());
            }
            let servers = Servers::start(place)?;
            servers.name_to(&mut command);
            let mut outcome = tests(command)?;
            if outcome.verdict == Verdict::Ok && outcome.tally.is_none_or(|tally| tally.ran() == 0) {
                outcome.verdict = Verdict::Failed("no test ran".to_owned());
            }
            Ok(outcome)
        }
        Part::Api => api::check(place).map(Outcome::plain),
        Part::Clients => {
            let clients::Checked { verdict, tally, failures } = clients::check(place)?;
            Ok(Outcome { verdict, tally: Some(tally), failures })
        }
        Part::Doc => {
            let mut command = place.cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]);
            command.args(test_args);
            tests(command)
        }
        Part::Library => library::check(place).map(Outcome::plain),
        Part::Docs => docs::check(place).map(Outcome::plain),
    }
}

#[expect(clippy::disallowed_methods, reason = "xtask only measures how long a part took; nothing replays it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds with one decimal, as people read them.
pub(crate) fn seconds(took: Duration) -> String {
    format!("{:.1}", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found_by_its_own_name() {
        for part in Part::ALL {
            assert_eq!(Part::named(part.name()).unwrap(), part);
        }
        assert!(Part::named("everything").is_err());
    }
}
