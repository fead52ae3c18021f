//! The servers that the stores' tests need: one PostgreSQL, one Redis and one PgBouncer for a whole run.
//!
//! They are started on free ports and named to the tests by three variables; each is gone, with its data, when the
//! run ends in whatever way (`quell-test-servers` sees to that). What is not installed is installed first, if we may;
//! otherwise the one line that does it is printed. Nothing is skipped: a store whose tests did not run is not tested.
//! The browser that the tests of the dashboard steer is installed in the same way.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use quell_test_servers::{INSTALL, Options, PgBouncer, Postgres, Redis};

use crate::report::Verdict;
use crate::{Place, parts, process};

/// A memory file system with at least this much room is used for the data, so that a disk is not worn by tests.
const ROOM: u64 = 1 << 30;

/// Which variable names which URL.
type Names = [(&'static str, String); 3];

/// The servers of one run, or the names of those that the caller had already started.
pub(crate) struct Servers {
    names: Names,
    _running: Option<(PgBouncer, Postgres, Redis)>,
}

impl Servers {
    /// In memory if there is room for it.
    pub(crate) fn start(place: &Place) -> anyhow::Result<Self> {
        Self::start_in(place, memory_folder())
    }

    fn start_in(place: &Place, folder: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(names) = named_by_caller(|variable| std::env::var(variable).ok()) {
            println!("using the servers that the environment names");
            return Ok(Self { names, _running: None });
        }
        install_missing(place)?;
        let since = parts::now();
        let options = || match &folder {
            Some(folder) => Options::default().inside(folder),
            None => Options::default(),
        };
        let postgres = Postgres::start(options()).context("cannot start PostgreSQL")?;
        let pgbouncer = PgBouncer::start_with(&postgres, options()).context("cannot start PgBouncer")?;
        let redis = Redis::start_with(options()).context("cannot start Redis")?;
        println!(
            "started PostgreSQL on port {}, PgBouncer on {}, Redis on {} in {} s",
            postgres.port(),
            pgbouncer.port(),
            redis.port(),
            parts::seconds(since.elapsed())
        );
        let names = [
            (quell_test_servers::POSTGRES, postgres.url()),
            (quell_test_servers::REDIS, redis.url()),
            (quell_test_servers::PGBOUNCER, pgbouncer.url()),
        ];
        Ok(Self { names, _running: Some((pgbouncer, postgres, redis)) })
    }

    /// Tells a program where the servers are.
    pub(crate) fn name_to(&self, command: &mut Command) {
        command.envs(self.names.iter().map(|(variable, url)| (variable, url)));
    }
}

/// `with-servers`: runs a program where the person stands, with its own exit code as ours.
pub(crate) fn around(place: &Place, inside: Option<PathBuf>, program: &[String]) -> anyhow::Result<ExitCode> {
    let (name, args) = program.split_first().context("the command line was checked for a program")?;
    let servers = Servers::start_in(place, inside.or_else(memory_folder))?;
    let mut command = Command::new(name);
    command.args(args);
    servers.name_to(&mut command);
    std::io::stdout().flush().context("cannot write to standard output")?;
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    // Shells report a death by signal in the same way.
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// All three or none: a mixture would put PgBouncer before another PostgreSQL than the one it is compared with.
fn named_by_caller(value: impl Fn(&str) -> Option<String>) -> Option<Names> {
    let name = |variable| Some((variable, value(variable).filter(|url| !url.is_empty())?));
    Some([
        name(quell_test_servers::POSTGRES)?,
        name(quell_test_servers::REDIS)?,
        name(quell_test_servers::PGBOUNCER)?,
    ])
}

pub(crate) fn install_missing(place: &Place) -> anyhow::Result<()> {
    let packages = quell_test_servers::missing_packages();
    if packages.is_empty() {
        return Ok(());
    }
    let line = format!("not installed: {}. Install with: {INSTALL}", packages.join(", "));
    anyhow::ensure!(rustix::process::geteuid().is_root(), "{line}");
    println!("not installed: {}; installing takes some seconds", packages.join(", "));
    let mut command = place.command("sh");
    command.arg("xtask/src/install.sh").args(&packages).env("DEBIAN_FRONTEND", "noninteractive");
    if let Verdict::Failed(reason) = process::stream(command)? {
        anyhow::bail!("apt-get failed ({reason}); {line}");
    }
    let packages = quell_test_servers::missing_packages();
    anyhow::ensure!(packages.is_empty(), "installed, but still not found: {}", packages.join(", "));
    Ok(())
}

fn memory_folder() -> Option<PathBuf> {
    let folder = PathBuf::from("/dev/shm");
    let about = rustix::fs::statvfs(&folder).ok()?;
    let open =
        rustix::fs::access(&folder, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    (open && about.f_bavail.saturating_mul(about.f_frsize) >= ROOM).then_some(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_the_caller_are_used_only_if_all_are_named() {
        let named = named_by_caller(|variable| Some(format!("url of {variable}"))).unwrap();
        assert!(named.contains(&("QUELL_TEST_REDIS", "url of QUELL_TEST_REDIS".to_owned())));
        for missing in
            [quell_test_servers::POSTGRES, quell_test_servers::REDIS, quell_test_servers::PGBOUNCER]
        {
            assert_eq!(named_by_caller(|variable| (variable != missing).then(|| "url".to_owned())), None);
            assert_eq!(named_by_caller(|variable| Some(variable.replace(missing, ""))), None);
        }
    }
}
