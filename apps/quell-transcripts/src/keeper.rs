//! Exactly one worker per database, without a daemon: a lock that a process holds as long as it lives.
//!
//! Whoever works on a database holds `<database>-worker` locked. A hook that gets the lock has found that nobody works,
//! starts a worker and hands it the locked file as its standard input: the lock never is free in between, so of any number
//! of hooks at once one starts a worker. The lock ends with the process, however that ends.
//!
//! A worker that finds nothing left gives the lock up *first* and looks once more *then*: an event that was stored while
//! the lock was held is seen by that look, and one that is stored later finds the lock free.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-worker");
    PathBuf::from(name)
}

fn open(database: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(lock_path(database))
}

fn held(done: Result<(), TryLockError>, file: File) -> io::Result<Option<File>> {
    match done {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The lock, if nobody works on the database.
pub fn alone(database: &Path) -> io::Result<Option<File>> {
    let file = open(database)?;
    held(file.try_lock(), file)
}

/// The lock beside other servers, unless a worker of a hook has it: for processes that work there for good.
pub fn beside_others(database: &Path) -> io::Result<Option<File>> {
    let file = open(database)?;
    held(file.try_lock_shared(), file)
}

/// Starts a worker that owns the lock. It gets a folder and a standard output of its own: nothing of the agent's is kept
/// open by it.
pub fn start(
    program: &Path,
    args: &[String],
    env: &[(&str, String)],
    lock: File,
    folder: &Path,
) -> io::Result<()> {
    let mut command = Command::new(program);
    command.args(args).envs(env.iter().map(|(name, value)| (name, value))).current_dir(folder);
    command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_the_lock_until_it_lets_go() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("q.db");
        let first = alone(&database).unwrap().expect("nobody has it");
        assert!(alone(&database).unwrap().is_none());
        assert!(beside_others(&database).unwrap().is_none(), "a worker of a hook is there");
        first.unlock().unwrap();
        let server = beside_others(&database).unwrap().expect("it is free");
        let other = beside_others(&database).unwrap().expect("servers stand beside each other");
        assert!(alone(&database).unwrap().is_none(), "a server is there, so no hook starts a worker");
        drop((server, other, first));
        assert!(alone(&database).unwrap().is_some());
    }

    #[test]
    fn a_started_program_holds_the_lock_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("q.db");
        let lock = alone(&database).unwrap().unwrap();
        start(Path::new("/bin/sh"), &["-c".into(), "sleep 0.5".into()], &[], lock, folder.path()).unwrap();
        assert!(alone(&database).unwrap().is_none(), "the program has it, although we have closed ours");
        for _ in 0..200 {
            if alone(&database).unwrap().is_some() {
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
        panic!("the lock outlived its program");
    }
}
