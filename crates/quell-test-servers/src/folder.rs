//! The fresh folder that a server lives in, with its guard from the first moment on.

use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::Options;
use crate::guard::Guard;
use crate::process::{Pid, Send};
use crate::user::User;

/// Deleted with everything in it when the value goes, or by the guard when the value cannot.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: TempDir,
    /// As the system knows it: processes are recognised by the folder they stand in.
    path: PathBuf,
    guard: Guard,
}

impl Folder {
    /// Made for a product and given to the user who will run it.
    pub(crate) fn fresh(product: &str, options: &Options, user: User, end_at_once: Send) -> io::Result<Self> {
        let prefix = format!("quell-{product}-");
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(options.parent())?;
        let path = folder.path().canonicalize()?;
        user.own(&path)?;
        user.check_enters(&path)?;
        let guard = Guard::over(&path, end_at_once)?;
        Ok(Self { folder, path, guard })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// This process works in the folder and has to end before it.
    pub(crate) fn watch(&mut self, pid: Pid) -> io::Result<()> {
        self.guard.watch(pid)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::fs::remove_dir_all(self.folder.path()).is_ok() {
            self.guard.dismiss();
        }
        // Otherwise the end of the pipe makes the guard try once more.
    }
}
