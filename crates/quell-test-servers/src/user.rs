//! The user that a server runs as.
//!
//! PostgreSQL and PgBouncer refuse to be root. Containers and CI often are, so there the servers run as `nobody`, by
//! way of `setpriv`, which replaces itself with the server: the process we started *is* the server.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

/// Who runs the server: ourselves, or `nobody` with these ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Ourselves,
    Nobody { uid: u32, gid: u32 },
}

impl User {
    /// For a server that refuses root.
    pub(crate) fn unprivileged() -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Ourselves);
        }
        nobody(&std::fs::read_to_string("/etc/passwd")?).ok_or_else(|| {
            io::Error::other("the servers refuse root, and there is no user `nobody` to run them")
        })
    }

    /// The program, as this user.
    pub(crate) fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Ourselves => Command::new(program),
            Self::Nobody { uid, gid } => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={uid}")).arg(format!("--regid={gid}")).arg("--clear-groups");
                command.arg(program.as_ref());
                command
            }
        }
    }

    /// Gives a file or folder of ours to this user.
    pub(crate) fn own(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Ourselves => Ok(()),
            Self::Nobody { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        }
    }

    /// Refuses a folder that this user cannot even enter, before the server does so with a less helpful text.
    pub(crate) fn check_enters(self, folder: &Path) -> io::Result<()> {
        let Self::Nobody { uid, .. } = self else { return Ok(()) };
        for folder in folder.ancestors() {
            let about = folder.metadata()?;
            if about.uid() != uid && about.permissions().mode() & 0o001 == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "the servers refuse root and run as `nobody`, who cannot enter {}; set TMPDIR to a folder \
                         that is open to everyone",
                        folder.display()
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn nobody(passwd: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some("nobody")).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(User::Nobody { uid, gid })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_found_with_both_ids() {
        let passwd = "daemon:x:1:1::/:/bin/sh\nnobody:x:65534:65533:nobody:/nonexistent:/usr/sbin/nologin\n";
        assert_eq!(nobody(passwd), Some(User::Nobody { uid: 65534, gid: 65533 }));
        assert_eq!(nobody("somebody:x:1:1::/:/bin/sh\n"), None);
    }

    #[test]
    fn a_folder_closed_to_nobody_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        let stranger = User::Nobody { uid: u32::MAX - 1, gid: u32::MAX - 1 };
        let error = stranger.check_enters(&inside).unwrap_err();
        assert!(error.to_string().contains(&format!("{};", folder.path().display())), "{error}");
        assert!(User::Ourselves.check_enters(&inside).is_ok());
    }
}
