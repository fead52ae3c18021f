//! Where the server programs, the browser, the judge of alert rules and the counter of instructions are, and what to install when they are not there.
//!
//! Debian keeps PostgreSQL's server programs outside of `PATH`, one folder per major version, and PgBouncer in a
//! folder that only root has in its `PATH`; the newest PostgreSQL is taken. The browser is Debian's Chromium, unless
//! two variables name another one.

use std::io;
use std::path::{Path, PathBuf};

/// The one line that brings everything, for a person to copy.
pub const INSTALL: &str = "apt-get install --no-install-recommends postgresql pgbouncer redis-server python3-venv nodejs npm jq chromium chromium-driver prometheus valgrind strace";

/// Which variables name a browser and its driver that are elsewhere.
const CHROMIUM: &str = "QUELL_TEST_CHROMIUM";
const CHROMEDRIVER: &str = "QUELL_TEST_CHROMEDRIVER";

const VERSIONS: &str = "/usr/lib/postgresql";

/// The Debian packages whose programs are not there; empty when everything can start.
#[must_use]
pub fn missing_packages() -> Vec<&'static str> {
    let found = [
        ("postgresql", postgres("postgres").and_then(|_| postgres("initdb"))),
        ("pgbouncer", pgbouncer()),
        ("redis-server", redis()),
        ("python3-venv", python()),
        ("nodejs", find("node", "Node.js", Vec::new())),
        // Debian packs it separately; whoever has Node from elsewhere has it already.
        ("npm", find("npm", "npm", Vec::new())),
        // For the handler in shell of the guide.
        ("jq", find("jq", "jq", Vec::new())),
        ("chromium", chromium()),
        ("chromium-driver", chromedriver()),
        ("prometheus", promtool()),
        ("valgrind", valgrind()),
        ("strace", strace()),
    ];
    found.into_iter().filter(|(_, program)| program.is_err()).map(|(package, _)| package).collect()
}

pub(crate) fn postgres(name: &str) -> io::Result<PathBuf> {
    find(name, "PostgreSQL", versions(Path::new(VERSIONS)))
}

pub(crate) fn pgbouncer() -> io::Result<PathBuf> {
    find("pgbouncer", "PgBouncer", vec!["/usr/sbin".into(), "/usr/local/sbin".into()])
}

pub(crate) fn redis() -> io::Result<PathBuf> {
    find("redis-server", "Redis", Vec::new())
}

/// With the parts that Debian packs separately: workers in Python and the tools of `cargo xtask test` need them.
fn python() -> io::Result<PathBuf> {
    let program = find("python3", "Python", Vec::new())?;
    let mut ask = std::process::Command::new(&program);
    let answer = ask.args(["-c", "import ensurepip, venv"]).output()?;
    if answer.status.success() {
        return Ok(program);
    }
    let text = format!("Python has no module `venv`; install it with: {INSTALL}");
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// Chromium and chromedriver, for tests that look at pages.
pub fn browser() -> io::Result<(PathBuf, PathBuf)> {
    let needed = |_| {
        let text = "chromium and chromedriver are needed: \
                    apt-get install --no-install-recommends chromium chromium-driver";
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    Ok((chromium().map_err(needed)?, chromedriver().map_err(needed)?))
}

/// What judges alert rules; it comes with Prometheus.
pub fn promtool() -> io::Result<PathBuf> {
    find("promtool", "Prometheus", Vec::new())
}

/// What counts calls of the kernel.
pub fn strace() -> io::Result<PathBuf> {
    find("strace", "strace", Vec::new())
}

/// What counts instructions.
pub fn valgrind() -> io::Result<PathBuf> {
    find("valgrind", "Valgrind", Vec::new())
}

fn chromium() -> io::Result<PathBuf> {
    named_or_found(CHROMIUM, "chromium", "Chromium")
}

fn chromedriver() -> io::Result<PathBuf> {
    named_or_found(CHROMEDRIVER, "chromedriver", "chromedriver")
}

/// What a variable names is taken if it is there, and nothing else in its place.
fn named_or_found(variable: &str, program: &str, product: &str) -> io::Result<PathBuf> {
    match std::env::var_os(variable).filter(|named| !named.is_empty()) {
        Some(named) => {
            let gone = || io::Error::new(io::ErrorKind::NotFound, format!("{variable} names no file"));
            Some(PathBuf::from(named)).filter(|file| file.is_file()).ok_or_else(gone)
        }
        None => find(program, product, vec!["/usr/bin".into()]),
    }
}

/// The programs' folders of all installed versions, newest first.
fn versions(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    found.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn find(program: &str, product: &str, mut folders: Vec<PathBuf>) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file()).ok_or_else(|| {
        let text = format!("{product} is not installed (no program `{program}`); install it with: {INSTALL}");
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_comes_first_by_number_and_not_by_letter() {
        let base = tempfile::tempdir().unwrap();
        for version in ["9", "17", "15", "not-a-version"] {
            std::fs::create_dir(base.path().join(version)).unwrap();
        }
        let wanted = ["17", "15", "9"].map(|version| base.path().join(version).join("bin"));
        assert_eq!(versions(base.path()), wanted);
    }

    #[test]
    fn a_missing_program_names_the_line_that_installs_it() {
        let error = find("no-such-server", "Nothing", Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains(INSTALL), "{error}");
    }
}
