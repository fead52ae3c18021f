//! Which files may be read as transcripts.
//!
//! A path comes with a hook, so anybody who can write to our input can name any file, and what is read becomes
//! searchable. So only regular files below the directories that were configured are opened, and a path is never checked
//! and opened afterwards: it is opened from the root downwards without following a link anywhere, and then the
//! descriptor is asked what it is. What the name stands for a moment later does not matter any more.
//!
//! The owner matters as well. A hard link is a regular file, and whoever may write below a root can make one to a file
//! that is not theirs. A transcript belongs to whom the root belongs to, or to the user that we run as; when that is
//! root, who can read everything, only the former counts.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Linux takes no longer path in one call.
pub const PATH_BYTES_MAX: usize = 4096;
/// Subagents of one session; more are not looked for.
pub const SUBAGENTS_MAX: usize = 1000;
/// How deep below `subagents` is looked: the agent's own layout goes two directories down.
const DEPTH_MAX: usize = 4;
/// How many names are looked at for one session, of whatever kind.
const NAMES_MAX: usize = 20_000;

/// Why a path is not read.
#[derive(Debug, Error)]
pub enum Refused {
    #[error("the path is empty")]
    Empty,
    #[error("the path has {0} bytes, more than {PATH_BYTES_MAX}")]
    TooLong(usize),
    #[error("the path holds a NUL")]
    Nul,
    #[error("the path is not absolute")]
    Relative,
    #[error("the path holds `..`")]
    Parent,
    #[error("the path is below none of the configured directories")]
    Outside,
    #[error("there is a symbolic link in the path below the configured directory")]
    Link,
    #[error("it is not a regular file")]
    NotAFile,
    #[error(
        "it belongs to user {0}, who is neither the owner of the configured directory nor the user we run as"
    )]
    Owner(u32),
    /// It may yet be written: a hook can be faster than the file that it tells of.
    #[error("there is no such file (yet)")]
    Missing,
    #[error("the file cannot be opened: {0}")]
    Io(#[from] io::Error),
}

/// The directories below which transcripts are read.
#[derive(Debug, Default)]
pub struct Roots {
    roots: Vec<Root>,
}

#[derive(Debug)]
struct Root {
    configured: PathBuf,
    /// Without links, found once: the directory may be made after we were started, but then stays the same.
    canonical: OnceLock<PathBuf>,
}

/// A file that may be read.
#[derive(Debug)]
pub struct Opened {
    pub file: File,
    /// Its path without links, to be shown and to be known again by.
    pub path: PathBuf,
}

/// Transcripts of the subagents of a session. They are only names: each is to be opened by [`Roots::open`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Subagents {
    /// In the directory of the session.
    pub own: Vec<PathBuf>,
    /// Beside the main file, where older releases put those of all sessions: the lines say which session they are of.
    pub beside: Vec<PathBuf>,
    /// There are more.
    pub cut: bool,
}

/// How a path is gone down without following links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In one call, where the kernel has it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Beneath,
    /// Directory by directory: other systems, old kernels, and sandboxes that know not all calls.
    Walk,
}

impl Roots {
    /// A directory that is not given from `/` would be another one wherever we are started, and is left out.
    pub fn new(configured: Vec<PathBuf>) -> Roots {
        let root = |configured| {
            let root = Root { configured, canonical: OnceLock::new() };
            root.canonical();
            root
        };
        Roots { roots: configured.into_iter().filter(|path| path.is_absolute()).map(root).collect() }
    }

    /// Where Claude Code keeps them: `$CLAUDE_CONFIG_DIR`, or `.claude` in the home directory.
    pub fn default_for(lookup: impl Fn(&str) -> Option<OsString>) -> Roots {
        let path = |name| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let root = path("CLAUDE_CONFIG_DIR").or_else(|| Some(path("HOME")?.join(".claude")));
        Roots::new(root.into_iter().collect())
    }

    /// Opens a transcript for reading, if it may be read.
    pub fn open(&self, path: &Path) -> Result<Opened, Refused> {
        self.open_by(path, first_way())
    }

    fn open_by(&self, path: &Path, way: Way) -> Result<Opened, Refused> {
        // A FIFO without a writer would keep us waiting, and a terminal would become ours.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.find(path, |root, below| {
            let top = root.open()?;
            let found = File::from(beneath(top.as_fd(), below, flags, way)?);
            let (is, its_root) = (stat(&found)?, stat(&top)?);
            if FileType::from_raw_mode(is.st_mode) != FileType::RegularFile {
                return Err(Refused::NotAFile);
            }
            let me = rustix::process::geteuid();
            if is.st_uid != its_root.st_uid && (me.is_root() || is.st_uid != me.as_raw()) {
                return Err(Refused::Owner(is.st_uid));
            }
            Ok(Opened { file: found, path: root.shown(below) })
        })
    }

    /// The transcripts of the subagents of the session whose main transcript is at this path, sorted. What cannot be
    /// listed is not there.
    pub fn subagents(&self, main: &Path, session_id: &str) -> Subagents {
        self.subagents_by(main, session_id, first_way())
    }

    fn subagents_by(&self, main: &Path, session_id: &str, way: Way) -> Subagents {
        let mut found = Subagents::default();
        let Some(folder) = main.parent() else { return found };
        let mut looking = Looking { left: NAMES_MAX, cut: false };
        // It becomes a part of a path.
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if (1..=200).contains(&session_id.len()) && session_id.bytes().all(sound) {
            let own = folder.join(session_id).join("subagents");
            found.own = self.agents_in(&own, DEPTH_MAX, &mut looking, way);
        }
        found.beside = self.agents_in(folder, 0, &mut looking, way);
        found.cut = looking.cut;
        found
    }

    fn agents_in(&self, folder: &Path, depth: usize, looking: &mut Looking, way: Way) -> Vec<PathBuf> {
        let listed = self.find(folder, |root, below| {
            let folder = beneath(root.open()?.as_fd(), below, OFlags::RDONLY | OFlags::DIRECTORY, way)?;
            let mut found = Vec::new();
            looking.list(folder, &root.shown(below), depth, &mut found);
            Ok(found)
        });
        let mut found = listed.unwrap_or_default();
        found.sort();
        found
    }

    /// Does it with the first root that the path is below of, and with the next if that fails.
    fn find<T>(
        &self,
        path: &Path,
        mut open: impl FnMut(&Root, &Path) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        sound(path)?;
        let mut refused = None;
        for root in &self.roots {
            let spellings = [Some(root.configured.as_path()), root.canonical()];
            let Some(below) = spellings.into_iter().flatten().find_map(|top| path.strip_prefix(top).ok())
            else {
                continue;
            };
            match open(root, below) {
                Ok(opened) => return Ok(opened),
                Err(because) => refused = refused.or(Some(because)),
            }
        }
        Err(refused.unwrap_or(Refused::Outside))
    }
}

impl Root {
    fn canonical(&self) -> Option<&Path> {
        if self.canonical.get().is_none()
            && let Ok(path) = self.configured.canonicalize()
        {
            // Somebody else may have set it; then it is the same.
            let _ = self.canonical.set(path);
        }
        self.canonical.get().map(PathBuf::as_path)
    }

    /// The root may be reached through links: whoever configured it wanted that.
    fn open(&self) -> Result<OwnedFd, Refused> {
        let path = self.canonical().ok_or(Refused::Missing)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(refusal)
    }

    fn shown(&self, below: &Path) -> PathBuf {
        self.canonical().unwrap_or(&self.configured).join(below)
    }
}

fn sound(path: &Path) -> Result<(), Refused> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Refused::Empty);
    }
    if bytes.len() > PATH_BYTES_MAX {
        return Err(Refused::TooLong(bytes.len()));
    }
    if bytes.contains(&0) {
        return Err(Refused::Nul);
    }
    if !path.is_absolute() {
        return Err(Refused::Relative);
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(Refused::Parent);
    }
    Ok(())
}

fn stat(file: impl AsFd) -> Result<rustix::fs::Stat, Refused> {
    rustix::fs::fstat(file).map_err(refusal)
}

fn refusal(errno: Errno) -> Refused {
    match errno {
        Errno::NOENT => Refused::Missing,
        Errno::LOOP => Refused::Link,
        Errno::XDEV => Refused::Outside,
        // A socket answers with the first, a file in the place of a directory with the second.
        Errno::NXIO | Errno::NOTDIR => Refused::NotAFile,
        Errno::NAMETOOLONG => Refused::TooLong(PATH_BYTES_MAX + 1),
        other => Refused::Io(other.into()),
    }
}

fn first_way() -> Way {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Way::Beneath;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return Way::Walk;
}

fn beneath(top: BorrowedFd<'_>, below: &Path, flags: OFlags, way: Way) -> Result<OwnedFd, Refused> {
    match way {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        Way::Beneath => {
            use rustix::fs::ResolveFlags;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags_all = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let name = if below.as_os_str().is_empty() { Path::new(".") } else { below };
            match rustix::fs::openat2(top, name, flags_all, Mode::empty(), resolve) {
                // Not there, not allowed, or something was renamed meanwhile and the kernel is not sure.
                Err(Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::AGAIN) => {
                    beneath(top, below, flags, Way::Walk)
                }
                other => other.map_err(refusal),
            }
        }
        Way::Walk => walk(top, below, flags),
    }
}

fn walk(top: BorrowedFd<'_>, below: &Path, flags: OFlags) -> Result<OwnedFd, Refused> {
    let open = |folder: BorrowedFd<'_>, name: &Path, flags: OFlags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(|errno| {
            // What a link answers differs between systems, so it is asked what it is; this only makes the message.
            let is = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
            match is.map(|is| FileType::from_raw_mode(is.st_mode)) {
                Ok(FileType::Symlink) => Refused::Link,
                Ok(FileType::Socket) => Refused::NotAFile,
                _ => refusal(errno),
            }
        })
    };
    let folder = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = open(top, Path::new("."), folder)?;
    let mut parts = below.components().peekable();
    while let Some(part) = parts.next() {
        // The path was looked at before; nothing else can stand in it.
        let Component::Normal(name) = part else { return Err(Refused::Parent) };
        at = open(at.as_fd(), Path::new(name), if parts.peek().is_some() { folder } else { flags })?;
    }
    Ok(at)
}

/// What is left of the names that may be looked at.
struct Looking {
    left: usize,
    cut: bool,
}

impl Looking {
    fn list(&mut self, folder: OwnedFd, shown: &Path, depth: usize, found: &mut Vec<PathBuf>) {
        let Ok(names) = Dir::read_from(&folder) else { return };
        for name in names.map_while(Result::ok) {
            if self.left == 0 || found.len() == SUBAGENTS_MAX {
                self.cut = true;
                return;
            }
            self.left -= 1;
            let bytes = name.file_name().to_bytes();
            if matches!(bytes, b"." | b"..") {
                continue;
            }
            let path = || shown.join(OsString::from_vec(bytes.to_vec()));
            let kind = name.file_type();
            let is_agent = bytes.starts_with(b"agent-") && bytes.ends_with(b".jsonl");
            // Not every file system says what a name stands for.
            if is_agent && matches!(kind, FileType::RegularFile | FileType::Unknown) {
                found.push(path());
            } else if depth > 0 && matches!(kind, FileType::Directory | FileType::Unknown) {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                if let Ok(inner) = rustix::fs::openat(&folder, name.file_name(), flags, Mode::empty()) {
                    self.list(inner, &path(), depth - 1, found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;

    fn ways() -> Vec<Way> {
        let mut ways = vec![first_way(), Way::Walk];
        ways.dedup();
        ways
    }

    /// `root/projects/p/t.jsonl` below a directory that has no links in its path, and things beside it.
    fn scene() -> (TempDir, PathBuf, Roots) {
        let dir = TempDir::new().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("root/projects/p")).unwrap();
        fs::create_dir_all(base.join("root-not/p")).unwrap();
        fs::write(base.join("root/projects/p/t.jsonl"), "inside").unwrap();
        fs::write(base.join("secret"), "outside").unwrap();
        fs::write(base.join("root-not/p/t.jsonl"), "outside").unwrap();
        let roots = Roots::new(vec![base.join("root")]);
        (dir, base, roots)
    }

    fn text(opened: Opened) -> String {
        let mut text = String::new();
        (&opened.file).read_to_string(&mut text).unwrap();
        text
    }

    /// The refusal, by every way; a file that is opened is a failure.
    #[track_caller]
    fn refused(roots: &Roots, path: impl AsRef<Path>, expected: fn(&Refused) -> bool) {
        for way in ways() {
            match roots.open_by(path.as_ref(), way) {
                Err(because) => assert!(expected(&because), "{way:?}: {because:?}"),
                Ok(opened) => panic!("{way:?}: opened {}", opened.path.display()),
            }
        }
    }

    #[test]
    fn a_file_below_a_root_is_opened() {
        let (_dir, base, roots) = scene();
        for way in ways() {
            for path in ["root/projects/p/t.jsonl", "root/./projects//p/t.jsonl"] {
                let opened = roots.open_by(&base.join(path), way).unwrap();
                assert_eq!(opened.path, base.join("root/projects/p/t.jsonl"));
                assert_eq!(text(opened), "inside");
            }
        }
    }

    #[test]
    fn paths_that_are_none_are_refused_before_anything_is_opened() {
        let (_dir, base, roots) = scene();
        refused(&roots, "", |r| matches!(r, Refused::Empty));
        refused(&roots, "root/projects/p/t.jsonl", |r| matches!(r, Refused::Relative));
        refused(&roots, base.join("root/a\0b"), |r| matches!(r, Refused::Nul));
        refused(&roots, base.join(format!("root/{}", "x/".repeat(2500))), |r| {
            matches!(r, Refused::TooLong(_))
        });
        refused(&roots, base.join(format!("root/{}", "x".repeat(300))), |r| matches!(r, Refused::TooLong(_)));
        refused(&roots, base.join("root/../secret"), |r| matches!(r, Refused::Parent));
        refused(&roots, base.join("root/projects/../projects/p/t.jsonl"), |r| matches!(r, Refused::Parent));
    }

    #[test]
    fn what_is_not_below_a_root_is_refused() {
        let (_dir, base, roots) = scene();
        for path in ["secret", "root-not/p/t.jsonl", ""] {
            refused(&roots, base.join(path), |r| matches!(r, Refused::Outside));
        }
        refused(&roots, "/etc/passwd", |r| matches!(r, Refused::Outside));
        refused(&roots, "/dev/zero", |r| matches!(r, Refused::Outside));
        refused(&Roots::default(), base.join("root/projects/p/t.jsonl"), |r| matches!(r, Refused::Outside));
    }

    #[test]
    fn links_below_a_root_are_not_followed() {
        let (_dir, base, roots) = scene();
        symlink(base.join("secret"), base.join("root/out.jsonl")).unwrap();
        symlink("projects/p/t.jsonl", base.join("root/in.jsonl")).unwrap();
        symlink(&base, base.join("root/up")).unwrap();
        symlink("projects", base.join("root/same")).unwrap();
        symlink("nowhere", base.join("root/dangling")).unwrap();
        symlink("/proc/self/root", base.join("root/magic")).unwrap();
        for path in ["out.jsonl", "in.jsonl", "up/secret", "same/p/t.jsonl", "dangling", "magic/etc/passwd"] {
            refused(&roots, base.join("root").join(path), |r| matches!(r, Refused::Link));
        }
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused_and_waits_for_nobody() {
        let (_dir, base, roots) = scene();
        let fifo = base.join("root/fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let _listening = UnixListener::bind(base.join("root/socket")).unwrap();
        for path in ["fifo", "socket", "projects", "projects/p/t.jsonl/x", ""] {
            refused(&roots, base.join("root").join(path), |r| matches!(r, Refused::NotAFile));
        }
        // Also where the root itself holds devices.
        refused(&Roots::new(vec!["/dev".into()]), "/dev/zero", |r| matches!(r, Refused::NotAFile));
        refused(&Roots::new(vec!["/".into()]), "/dev/null", |r| matches!(r, Refused::NotAFile));
    }

    #[test]
    fn what_is_not_there_may_come() {
        let (_dir, base, roots) = scene();
        let late = base.join("root/new/late.jsonl");
        refused(&roots, &late, |r| matches!(r, Refused::Missing));
        fs::create_dir(base.join("root/new")).unwrap();
        refused(&roots, &late, |r| matches!(r, Refused::Missing));
        fs::write(&late, "x").unwrap();
        assert_eq!(text(roots.open(&late).unwrap()), "x");
        // So may the root.
        let roots = Roots::new(vec![base.join("later")]);
        refused(&roots, base.join("later/t"), |r| matches!(r, Refused::Missing));
        fs::create_dir(base.join("later")).unwrap();
        fs::write(base.join("later/t"), "y").unwrap();
        assert_eq!(text(roots.open(&base.join("later/t")).unwrap()), "y");
    }

    #[test]
    fn what_is_opened_stays_what_it_was_whatever_becomes_of_its_name() {
        let (_dir, base, roots) = scene();
        let path = base.join("root/projects/p/t.jsonl");
        for way in ways() {
            let opened = roots.open_by(&path, way).unwrap();
            fs::remove_file(&path).unwrap();
            symlink(base.join("secret"), &path).unwrap();
            assert_eq!(text(opened), "inside");
            refused(&roots, &path, |r| matches!(r, Refused::Link));
            fs::remove_file(&path).unwrap();
            fs::write(&path, "inside").unwrap();
        }
    }

    #[test]
    fn a_root_may_be_spelled_with_links() {
        let (_dir, base, _) = scene();
        symlink(&base, base.join("link")).unwrap();
        let roots = Roots::new(vec![base.join("link/root")]);
        for way in ways() {
            for prefix in ["link/root", "root"] {
                let opened = roots.open_by(&base.join(prefix).join("projects/p/t.jsonl"), way).unwrap();
                assert_eq!(opened.path, base.join("root/projects/p/t.jsonl"));
            }
        }
        refused(&roots, base.join("link/secret"), |r| matches!(r, Refused::Outside));
    }

    #[test]
    fn one_root_may_be_within_another() {
        let (_dir, base, _) = scene();
        symlink("projects", base.join("root/link")).unwrap();
        let roots = Roots::new(vec![base.join("root"), base.join("root/link")]);
        assert_eq!(text(roots.open(&base.join("root/link/p/t.jsonl")).unwrap()), "inside");
    }

    #[test]
    fn a_file_of_somebody_else_is_refused() {
        let (_dir, base, roots) = scene();
        let path = base.join("root/projects/p/t.jsonl");
        if rustix::process::geteuid().is_root() {
            // Ours is another's here: the root belongs to a user, and the file to us, who can read everything.
            std::os::unix::fs::chown(base.join("root"), Some(4242), None).unwrap();
            refused(&roots, &path, |r| matches!(r, Refused::Owner(0)));
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
            assert_eq!(text(roots.open(&path).unwrap()), "inside");
            std::os::unix::fs::chown(&path, Some(4243), None).unwrap();
            refused(&roots, &path, |r| matches!(r, Refused::Owner(4243)));
        } else {
            // The root is root's, and so is this file: it is the owner of the directory who counts.
            assert!(Roots::new(vec!["/etc".into()]).open(Path::new("/etc/passwd")).is_ok());
        }
    }

    #[test]
    fn the_default_root_is_where_the_agent_looks() {
        let of = |set: &'static [(&str, &str)]| {
            let roots = Roots::default_for(|name| {
                set.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
            });
            roots.roots.into_iter().map(|root| root.configured).collect::<Vec<_>>()
        };
        assert_eq!(of(&[("HOME", "/home/me")]), [Path::new("/home/me/.claude")]);
        assert_eq!(of(&[("CLAUDE_CONFIG_DIR", "/x"), ("HOME", "/home/me")]), [Path::new("/x")]);
        assert_eq!(of(&[("CLAUDE_CONFIG_DIR", ""), ("HOME", "/home/me")]), [Path::new("/home/me/.claude")]);
        assert!(of(&[]).is_empty() && of(&[("HOME", "me")]).is_empty());
    }

    #[test]
    fn subagents_are_found_in_both_layouts_and_not_through_links() {
        let (_dir, base, roots) = scene();
        let p = base.join("root/projects/p");
        let own = p.join("s-1/subagents");
        fs::create_dir_all(own.join("workflows/run/a/b/c")).unwrap();
        fs::create_dir_all(own.join("agent-folder.jsonl")).unwrap();
        for name in [
            "s-1/subagents/agent-b.jsonl",
            "s-1/subagents/agent-a.jsonl",
            "s-1/subagents/agent-a.meta.json",
            "s-1/subagents/other.jsonl",
            "s-1/subagents/workflows/run/agent-c.jsonl",
            "s-1/subagents/workflows/run/a/b/agent-d.jsonl",
            "s-1/subagents/workflows/run/a/b/c/agent-too-deep.jsonl",
            "s-1/agent-not-here.jsonl",
            "agent-old.jsonl",
        ] {
            fs::write(p.join(name), "x").unwrap();
        }
        symlink(base.join("secret"), own.join("agent-link.jsonl")).unwrap();
        symlink(&p, own.join("loop")).unwrap();
        for way in ways() {
            let found = roots.subagents_by(&p.join("t.jsonl"), "s-1", way);
            let names = |paths: &[PathBuf]| -> Vec<String> {
                paths.iter().map(|path| path.strip_prefix(&p).unwrap().display().to_string()).collect()
            };
            assert_eq!(
                names(&found.own),
                [
                    "s-1/subagents/agent-a.jsonl",
                    "s-1/subagents/agent-b.jsonl",
                    "s-1/subagents/workflows/run/a/b/agent-d.jsonl",
                    "s-1/subagents/workflows/run/agent-c.jsonl",
                ]
            );
            assert_eq!((names(&found.beside), found.cut), (vec!["agent-old.jsonl".to_owned()], false));
            for path in found.own.iter().chain(&found.beside) {
                assert_eq!(text(roots.open_by(path, way).unwrap()), "x");
            }
            for id in ["", "..", "../p/s-1", "s-1/", "s-2"] {
                assert!(roots.subagents_by(&p.join("t.jsonl"), id, way).own.is_empty(), "{id}");
            }
            assert_eq!(
                roots.subagents_by(&base.join("root-not/p/t.jsonl"), "s-1", way),
                Subagents::default()
            );
        }
        symlink(&own, p.join("s-3")).unwrap();
        fs::create_dir(p.join("s-4")).unwrap();
        symlink(&own, p.join("s-4/subagents")).unwrap();
        for id in ["s-3", "s-4"] {
            assert!(roots.subagents(&p.join("t.jsonl"), id).own.is_empty(), "{id}");
        }
    }

    #[test]
    fn there_is_an_end_to_subagents() {
        let (_dir, base, roots) = scene();
        let own = base.join("root/projects/p/s/subagents");
        fs::create_dir_all(&own).unwrap();
        for n in 0..=SUBAGENTS_MAX {
            fs::write(own.join(format!("agent-{n}.jsonl")), "").unwrap();
        }
        let found = roots.subagents(&base.join("root/projects/p/t.jsonl"), "s");
        assert_eq!((found.own.len(), found.cut), (SUBAGENTS_MAX, true));
    }
}
