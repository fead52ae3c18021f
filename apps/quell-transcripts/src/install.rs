//! `quell hook install`, `uninstall` and `status`: our entries in an agent's settings file, and nobody else's.
//!
//! The file belongs to the user. It usually holds other hooks already, often has a place in version control, and if it is
//! broken the agent ignores all of it. Therefore:
//!
//! - an entry is ours if its command is a call of `quell hook`, wherever the program lies and whatever its flags are; so
//!   a moved program is replaced in place and never doubled. A line of somebody's own that calls `quell hook` among other
//!   things counts as registered and is not touched;
//! - what is not ours stays, down to its spelling ([`crate::settings`]);
//! - a file with anything unexpected in it is refused before anything is written;
//! - what is written replaces the file at once, after a copy was put beside it, and only if the file is still the one that
//!   was read: agents write their settings, too.
//!
//! Deciding what to change ([`install`], [`uninstall`], [`status`]) does no I/O; [`apply`] does nothing else.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::clock;
use crate::events::{REGISTERED, REGISTERED_NEWER, Registration, Verdict, verdict};
use crate::settings::{Json, shown};
pub use crate::settings::{Problem, Settings};
use crate::words::{Ours, is_hook, is_ours};
pub use crate::words::{command_line, quoted};

/// How many copies are kept beside a settings file.
pub const BACKUPS_MAX: usize = 5;
/// How often somebody else may change the file while it is being changed here.
const ATTEMPTS: usize = 5;
/// Nobody has more settings than that.
const SETTINGS_MAX: u64 = 8 << 20;
/// Another installer is waited for this long, in steps of 20 ms.
const LOCK_STEPS: usize = 100;

/// Whose settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Of all projects of a user.
    User,
    /// Of everybody in a project: the file is usually in version control.
    Project,
    /// Of a user in a project.
    Local,
}

/// Where the settings of a scope are. `config_dir` is what `CLAUDE_CONFIG_DIR` says, if it says anything.
pub fn settings_path(scope: Scope, home: &Path, config_dir: Option<&Path>, project_dir: &Path) -> PathBuf {
    match scope {
        Scope::User => match config_dir.filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => folder.join("settings.json"),
            None => home.join(".claude/settings.json"),
        },
        Scope::Project => project_dir.join(".claude/settings.json"),
        Scope::Local => project_dir.join(".claude/settings.local.json"),
    }
}

/// What is done to settings, by the names of events.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    pub settings: Settings,
    pub added: Vec<String>,
    pub replaced: Vec<String>,
    /// More than one of ours in an event, or all of them when uninstalling.
    pub removed: Vec<String>,
}

impl Changed {
    fn nothing(settings: &Settings) -> Changed {
        Changed { settings: settings.clone(), added: vec![], replaced: vec![], removed: vec![] }
    }

    pub fn is_changed(&self) -> bool {
        !(self.added.is_empty() && self.replaced.is_empty() && self.removed.is_empty())
    }
}

/// Registers the hook for [`REGISTERED`].
pub fn install(settings: &Settings, command: &str, timeout_seconds: u64) -> Result<Changed, Problem> {
    install_events(settings, REGISTERED, command, timeout_seconds)
}

/// Registers the hook for these events, and brings every entry of ours up to date, also in other events.
pub fn install_events(
    settings: &Settings,
    events: &[Registration],
    command: &str,
    timeout_seconds: u64,
) -> Result<Changed, Problem> {
    if is_ours(command) != Ours::Yes {
        return Err(Problem::NotOurs);
    }
    let found = find(settings)?;
    let mut changed = Changed::nothing(settings);
    let mut acts = Vec::new();
    for entry in found.iter().filter(|entry| entry.ours == Ours::Yes) {
        let of_event: Vec<&Entry<'_>> =
            found.iter().filter(|other| other.event == entry.event && other.ours == Ours::Yes).collect();
        if !is_kept(entry, &of_event) {
            acts.push((entry, Act::Remove));
            changed.removed.push(entry.event.clone());
        } else if !is_current(entry.handler, command, timeout_seconds) {
            acts.push((entry, Act::Put));
            changed.replaced.push(entry.event.clone());
        }
    }
    let missing = events.iter().filter(|wanted| !found.iter().any(|entry| entry.event == wanted.event));
    let missing: Vec<&Registration> = missing.collect();
    changed.added.extend(missing.iter().map(|wanted| wanted.event.to_owned()));
    if !changed.is_changed() {
        return Ok(changed);
    }
    changed.settings.change(|root| {
        edit(root, &acts, |handler| write_handler(handler, command, timeout_seconds));
        if missing.is_empty() {
            return;
        }
        if Json::get_mut(root, "hooks").is_none() {
            root.push(("hooks".to_owned(), Json::Object(vec![])));
        }
        let Some(hooks) = Json::get_mut(root, "hooks").and_then(Json::object) else { return };
        for wanted in missing {
            let mut handler = Vec::new();
            write_handler(&mut handler, command, timeout_seconds);
            let mut group = Vec::new();
            group.extend(wanted.matcher.map(|matcher| ("matcher".to_owned(), Json::string(matcher))));
            group.push(("hooks".to_owned(), Json::Array(vec![Json::Object(handler)])));
            match Json::get_mut(hooks, wanted.event).and_then(Json::array) {
                Some(groups) => groups.push(Json::Object(group)),
                None => hooks.push((wanted.event.to_owned(), Json::Array(vec![Json::Object(group)]))),
            }
        }
    });
    Ok(changed)
}

/// Removes every entry of ours, and what is empty without it.
pub fn uninstall(settings: &Settings) -> Result<Changed, Problem> {
    let found = find(settings)?;
    let mut changed = Changed::nothing(settings);
    let acts: Vec<_> =
        found.iter().filter(|entry| entry.ours == Ours::Yes).map(|entry| (entry, Act::Remove)).collect();
    changed.removed.extend(acts.iter().map(|(entry, _)| entry.event.clone()));
    if changed.is_changed() {
        changed.settings.change(|root| edit(root, &acts, |_| {}));
    }
    Ok(changed)
}

/// An entry that calls `quell hook`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub event: String,
    /// None where everything is matched by leaving it out.
    pub matcher: Option<String>,
    pub command: String,
}

/// What the settings have of us.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// All entries that call `quell hook`, by the names of their events.
    pub registered: Vec<Registered>,
    /// Events of [`REGISTERED`] without one.
    pub missing: Vec<&'static str>,
    /// Events of [`REGISTERED_NEWER`] without one: no fault, but there is more to have.
    pub missing_newer: Vec<&'static str>,
    /// Entries with another command than the expected one: another program, or other flags.
    pub other: Vec<Registered>,
    /// Events in which the same is registered more than once.
    pub duplicates: Vec<String>,
    /// Lines of somebody's own with our call among others: left alone.
    pub among: Vec<Registered>,
    /// Events in which a hook of ours changes what the agent does.
    pub misplaced: Vec<String>,
    /// `disableAllHooks`: nothing of it is called at all.
    pub disabled: bool,
}

impl Status {
    /// Everything is there and is called.
    pub fn is_installed(&self) -> bool {
        self.missing.is_empty() && !self.disabled
    }
}

/// What there is. Without a command to expect, every command of ours is as good as another.
pub fn status(settings: &Settings, command: Option<&str>) -> Result<Status, Problem> {
    let found = find(settings)?;
    let mut status = Status {
        disabled: settings.value().get("disableAllHooks") == Some(&Value::Bool(true)),
        ..Status::default()
    };
    for entry in &found {
        let registered = Registered {
            event: entry.event.clone(),
            matcher: entry.matcher.map(str::to_owned),
            command: entry.command.clone(),
        };
        if entry.ours == Ours::Among {
            status.among.push(registered.clone());
        } else {
            let of_event: Vec<&Entry<'_>> =
                found.iter().filter(|other| other.event == entry.event && other.ours == Ours::Yes).collect();
            if !is_kept(entry, &of_event) && !status.duplicates.contains(&entry.event) {
                status.duplicates.push(entry.event.clone());
            }
            if command.is_some_and(|command| command != entry.command) {
                status.other.push(registered.clone());
            }
        }
        if verdict(&entry.event) == Some(Verdict::Never) && !status.misplaced.contains(&entry.event) {
            status.misplaced.push(entry.event.clone());
        }
        status.registered.push(registered);
    }
    let missing = |events: &[Registration]| -> Vec<&'static str> {
        let names = events.iter().map(|wanted| wanted.event);
        names.filter(|event| !found.iter().any(|entry| entry.event == *event)).collect()
    };
    status.missing = missing(REGISTERED);
    status.missing_newer = missing(REGISTERED_NEWER);
    Ok(status)
}

/// An entry of ours, and where it is.
struct Entry<'a> {
    event: String,
    group: usize,
    at: usize,
    matcher: Option<&'a str>,
    handler: &'a Value,
    /// The words of the exec form are written as a line.
    command: String,
    ours: Ours,
}

#[derive(Clone, Copy, PartialEq)]
enum Act {
    Put,
    Remove,
}

/// Looks at all hooks, and refuses what has not the shape of hooks: an agent would ignore the whole file, and what we do
/// not understand we do not change.
fn find(settings: &Settings) -> Result<Vec<Entry<'_>>, Problem> {
    let wrong = |place: String, expected| Problem::Shape { place, expected };
    let hooks = match settings.value().get("hooks") {
        None => return Ok(vec![]),
        Some(hooks) => hooks.as_object().ok_or_else(|| wrong("hooks".to_owned(), "an object"))?,
    };
    let mut found = Vec::new();
    for (event, groups) in hooks {
        let place = format!("hooks.{}", shown(event));
        let groups = groups.as_array().ok_or_else(|| wrong(place.clone(), "an array"))?;
        for (number, group) in groups.iter().enumerate() {
            let place = format!("{place}[{number}]");
            let group = group.as_object().ok_or_else(|| wrong(place.clone(), "an object"))?;
            let matcher = match group.get("matcher") {
                None => None,
                Some(matcher) => {
                    Some(matcher.as_str().ok_or_else(|| wrong(format!("{place}.matcher"), "a text"))?)
                }
            };
            let place = format!("{place}.hooks");
            let handlers = group.get("hooks").and_then(Value::as_array);
            for (at, handler) in handlers.ok_or_else(|| wrong(place.clone(), "an array"))?.iter().enumerate()
            {
                if !handler.is_object() {
                    return Err(wrong(format!("{place}[{at}]"), "an object"));
                }
                let (ours, command) = recognised(handler);
                if ours != Ours::No {
                    let event = event.clone();
                    found.push(Entry { event, group: number, at, matcher, handler, command, ours });
                }
            }
        }
    }
    Ok(found)
}

fn recognised(handler: &Value) -> (Ours, String) {
    let nothing = (Ours::No, String::new());
    if handler.get("type").is_some_and(|kind| kind != "command") {
        return nothing;
    }
    let Some(command) = handler.get("command").and_then(Value::as_str) else { return nothing };
    match handler.get("args").and_then(Value::as_array) {
        None => (is_ours(command), command.to_owned()),
        Some(args) => {
            let args = args.iter().map(|arg| arg.as_str().unwrap_or_default());
            let words: Vec<String> = std::iter::once(command).chain(args).map(str::to_owned).collect();
            let ours = if is_hook(&words) { Ours::Yes } else { Ours::No };
            (ours, command_line(words.iter().map(String::as_str)))
        }
    }
}

/// One for everything makes the others superfluous; else one for each matcher, because somebody may have meant it so.
fn is_kept(entry: &Entry<'_>, of_event: &[&Entry<'_>]) -> bool {
    let everything = |entry: &Entry<'_>| matches!(entry.matcher, None | Some("" | "*"));
    let same = |one: &Entry<'_>| (one.group, one.at) == (entry.group, entry.at);
    match of_event.iter().find(|other| everything(other)) {
        Some(first) => same(first),
        None => of_event.iter().find(|other| other.matcher == entry.matcher).is_none_or(|first| same(first)),
    }
}

fn is_current(handler: &Value, command: &str, timeout_seconds: u64) -> bool {
    handler.get("type").is_some_and(|kind| kind == "command")
        && handler.get("command").is_some_and(|there| there == command)
        && handler.get("timeout").and_then(Value::as_u64) == Some(timeout_seconds)
        && handler.get("args").is_none()
}

/// What else is in it (`async`, `statusMessage`) stays.
fn write_handler(handler: &mut Vec<(String, Json)>, command: &str, timeout_seconds: u64) {
    Json::set(handler, "type", Json::string("command"));
    Json::set(handler, "command", Json::string(command));
    Json::set(handler, "timeout", Json::number(timeout_seconds));
    handler.retain(|(name, _)| name != "args");
}

/// Does all of it, and takes away what is empty afterwards and was not before.
fn edit(root: &mut Vec<(String, Json)>, acts: &[(&Entry<'_>, Act)], put: impl Fn(&mut Vec<(String, Json)>)) {
    if acts.is_empty() {
        return;
    }
    let Some(hooks) = Json::get_mut(root, "hooks").and_then(Json::object) else { return };
    // From the last to the first, so that the numbers stay right.
    for (entry, act) in acts.iter().rev() {
        let Some(groups) = Json::get_mut(hooks, &entry.event).and_then(Json::array) else { continue };
        let Some(group) = groups.get_mut(entry.group).and_then(Json::object) else { continue };
        let Some(handlers) = Json::get_mut(group, "hooks").and_then(Json::array) else { continue };
        match act {
            Act::Put => {
                if let Some(handler) = handlers.get_mut(entry.at).and_then(Json::object) {
                    put(handler);
                }
            }
            Act::Remove => {
                handlers.remove(entry.at);
                if handlers.is_empty() {
                    groups.remove(entry.group);
                }
                if groups.is_empty() {
                    hooks.retain(|(event, _)| *event != entry.event);
                }
            }
        }
    }
    if hooks.is_empty() {
        root.retain(|(name, _)| name != "hooks");
    }
}

/// Why a settings file could not be changed. It was not touched.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error("{path} is left as it is: {problem}", path = .path.display())]
    Refused { path: PathBuf, problem: Problem },
    #[error("{doing} {path}: {error}", path = .path.display())]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    #[error("{path} was changed by somebody else each time it was about to be written; try again", path = .path.display())]
    Restless { path: PathBuf },
}

/// What became of a settings file.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    pub changed: bool,
    /// The file as it was before.
    pub backup: Option<PathBuf>,
    pub changes: Changed,
}

/// The settings in a file; none if there is none.
pub fn read(path: &Path) -> Result<Settings, InstallError> {
    let text = text_in(path, content(path)?.as_deref())?;
    Settings::read(&text).map_err(|problem| InstallError::Refused { path: path.to_owned(), problem })
}

/// Changes a settings file. It is called again with what is in the file then if somebody else changed it meanwhile.
pub fn apply(
    path: &Path,
    change: impl Fn(&Settings) -> Result<Changed, Problem>,
) -> Result<Applied, InstallError> {
    let target = behind_links(path)?;
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    for _ in 0..ATTEMPTS {
        let lock = lock(folder);
        let before = content(&target)?;
        let refused = |problem| InstallError::Refused { path: path.to_owned(), problem };
        let text = text_in(path, before.as_deref())?;
        let changes = change(&Settings::read(&text).map_err(refused)?).map_err(refused)?;
        if !changes.is_changed() {
            return Ok(Applied { changed: false, backup: None, changes });
        }
        if lock.is_none() && !folder.exists() {
            fs::create_dir_all(folder).map_err(failed("cannot make", folder))?;
            // Now there is something to lock.
            continue;
        }
        let backup = before.as_deref().map(|before| back_up(path, before)).transpose()?;
        match replace(folder, &target, before.as_deref(), changes.settings.text().as_bytes()) {
            Ok(true) => {
                sweep(path);
                return Ok(Applied { changed: true, backup, changes });
            }
            unchanged => {
                // Nothing was changed, so there is nothing to go back to.
                if let Some(backup) = backup {
                    let _ = fs::remove_file(backup);
                }
                unchanged?;
            }
        }
    }
    Err(InstallError::Restless { path: path.to_owned() })
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl Fn(io::Error) -> InstallError + 'a {
    move |error| InstallError::Io { doing, path: path.to_owned(), error }
}

/// The file itself where a dotfile manager has put a link: the link stays, and what it leads to is changed.
fn behind_links(path: &Path) -> Result<PathBuf, InstallError> {
    let mut target = path.to_owned();
    for _ in 0..32 {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                return Ok(target);
            }
            Err(error) => return Err(failed("cannot read", &target)(error)),
        }
    }
    Err(failed("cannot follow", path)(io::Error::other("it is a link that leads in a circle")))
}

fn content(path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    let found = fs::metadata(path).and_then(|found| match found.len() {
        _ if !found.is_file() => Err(io::Error::other("it is not a file")),
        0..=SETTINGS_MAX => fs::read(path),
        _ => Err(io::Error::other("it is too large for settings")),
    });
    match found {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("cannot read", path)(error)),
    }
}

fn text_in(path: &Path, content: Option<&[u8]>) -> Result<String, InstallError> {
    let text = String::from_utf8(content.unwrap_or_default().to_vec());
    text.map_err(|_| InstallError::Refused { path: path.to_owned(), problem: Problem::NotText })
}

/// Between two installers there is a lock, on the folder so that no file is left. If it cannot be had, the comparison
/// before the rename has to be enough, as it is with programs that know nothing of the lock.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    for _ in 0..LOCK_STEPS {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(folder),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(_) => return Some(folder),
        }
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
    }
    Some(folder)
}

/// Puts the new content in the place of the old one at once; false if it is not the old one any more.
fn replace(folder: &Path, target: &Path, before: Option<&[u8]>, after: &[u8]) -> Result<bool, InstallError> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(format!(".quell-{}-{number}.tmp", process::id()));
    let temporary = folder.join(name);
    let like = fs::metadata(target).ok();
    let replaced = written(&temporary, after, like.as_ref())
        .map_err(failed("cannot write", &temporary))
        .and_then(|()| {
            if content(target)?.as_deref() != before {
                return Ok(false);
            }
            fs::rename(&temporary, target).map_err(failed("cannot replace", target))?;
            Ok(true)
        });
    match replaced {
        // The new file is in its place; whether it survives a power cut is not worth an error.
        Ok(true) => drop(File::open(folder).and_then(|folder| folder.sync_all())),
        _ => drop(fs::remove_file(&temporary)),
    }
    replaced
}

/// For its owner alone, or with the mode and, as far as that may be given, the owner of the file it will replace: settings
/// that an administrator has changed are still the user's.
fn written(path: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    if let Some(like) = like {
        let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
        file.set_permissions(PermissionsExt::from_mode(like.mode() & 0o7777))?;
    }
    file.sync_all()
}

/// The copy is beside the file that the user knows, also if that is a link: it does not belong into somebody's repository.
fn back_up(path: &Path, content: &[u8]) -> Result<PathBuf, InstallError> {
    let time = clock::rfc3339(clock::millis()).replace(['-', ':'], "");
    for number in 0..100 {
        let mut name = backup_prefix(path);
        name.push(&time);
        if number > 0 {
            name.push(format!("-{number:02}"));
        }
        let backup = path.with_file_name(name);
        match written(&backup, content, None) {
            Ok(()) => return Ok(backup),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("cannot write", &backup)(error)),
        }
    }
    Err(failed("cannot write a copy of", path)(ErrorKind::AlreadyExists.into()))
}

fn backup_prefix(path: &Path) -> OsString {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".quell-backup-");
    name
}

/// Keeps the newest copies. Their names have their time, so the order of names is their order.
fn sweep(path: &Path) {
    let prefix = backup_prefix(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else { return };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut backups: Vec<OsString> =
        names.filter(|name| name.as_encoded_bytes().starts_with(prefix.as_encoded_bytes())).collect();
    backups.sort_unstable();
    for oldest in &backups[..backups.len().saturating_sub(BACKUPS_MAX)] {
        let _ = fs::remove_file(folder.join(oldest));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const COMMAND: &str = "quell hook";

    fn settings(text: &str) -> Settings {
        Settings::read(text).unwrap()
    }

    fn of(value: &Value) -> Settings {
        settings(&serde_json::to_string_pretty(value).unwrap())
    }

    fn ours(command: &str) -> Value {
        json!([{"hooks": [{"type": "command", "command": command, "timeout": 5}]}])
    }

    fn example() -> Settings {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hooks/settings.example.json");
        read(&path).unwrap()
    }

    /// A file as people have it: odd spelling, other hooks, an order of their own.
    const RICH: &str = r#"{
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "model": "opus",
    "permissions": {"deny": ["Read(./.env)"], "allow": ["Bash(git *)",
        "Bash(cargo *)"]},
    "hooks": {
        "Stop": [
            {"hooks": [{"type": "command", "command": "notify-send 'done'", "timeout": 1.50}]}
        ],
        "PostToolUse": [
            {
                "matcher": "Edit|Write",
                "hooks": [
                    {"command": "cargo fmt", "type": "command", "async": true},
                    {"type": "http", "url": "https://example.invalid/quell hook"}
                ]
            }
        ],
        "WorktreeCreate": []
    },
    "env": {"A": "\u00e4"}
}
"#;

    #[test]
    fn the_paths_of_the_scopes() {
        let (home, project) = (Path::new("/h"), Path::new("/p"));
        let path = |scope, config: Option<&str>| settings_path(scope, home, config.map(Path::new), project);
        assert_eq!(path(Scope::User, None), Path::new("/h/.claude/settings.json"));
        assert_eq!(path(Scope::User, Some("/c")), Path::new("/c/settings.json"));
        assert_eq!(path(Scope::User, Some("")), Path::new("/h/.claude/settings.json"));
        assert_eq!(path(Scope::Project, Some("/c")), Path::new("/p/.claude/settings.json"));
        assert_eq!(path(Scope::Local, Some("/c")), Path::new("/p/.claude/settings.local.json"));
    }

    #[test]
    fn the_example_is_installed_but_for_notifications() {
        let status = status(&example(), Some(COMMAND)).unwrap();
        assert_eq!(status.missing, ["Notification"]);
        assert_eq!(status.registered.len(), 7);
        assert!(status.other.is_empty() && status.duplicates.is_empty() && status.misplaced.is_empty());
        let changed = install(&example(), COMMAND, 5).unwrap();
        assert_eq!((changed.added, changed.replaced), (vec!["Notification".to_owned()], vec![]));
    }

    #[test]
    fn an_empty_file_gets_what_the_table_says_in_its_order() {
        let changed = install(&settings(""), COMMAND, 5).unwrap();
        let text = changed.settings.text();
        let expected = "{\n  \"hooks\": {\n    \"SessionStart\": [\n      {\n        \"hooks\": [\n          {\n            \
                        \"type\": \"command\",\n            \"command\": \"quell hook\",\n            \"timeout\": 5\n          \
                        }\n        ]\n      }\n    ],\n    \"UserPromptSubmit\": [\n";
        assert!(text.starts_with(expected), "{text}");
        let mut last = 0;
        for wanted in REGISTERED {
            let at = text.find(&format!("\"{}\"", wanted.event)).unwrap();
            assert!(at > last);
            last = at;
        }
        assert_eq!(changed.settings.value()["hooks"]["PostToolUse"][0]["matcher"], "*");
        assert_eq!(changed.settings.value()["hooks"]["Stop"][0].get("matcher"), None);
        assert!(status(&changed.settings, Some(COMMAND)).unwrap().is_installed());
        assert_eq!(uninstall(&changed.settings).unwrap().settings.text(), "{}\n");
    }

    #[test]
    fn newer_events_are_for_those_who_ask() {
        let all: Vec<Registration> = REGISTERED.iter().chain(REGISTERED_NEWER).copied().collect();
        let changed = install_events(&settings(""), &all, COMMAND, 5).unwrap();
        assert_eq!(changed.added.len(), REGISTERED.len() + REGISTERED_NEWER.len());
        assert_eq!(status(&changed.settings, None).unwrap().missing_newer, Vec::<&str>::new());
        // And stay when it is installed again without asking, brought up to date.
        let again = install(&changed.settings, "/opt/quell hook", 5).unwrap();
        assert_eq!((again.added.len(), again.replaced.len()), (0, all.len()));
        assert_eq!(uninstall(&again.settings).unwrap().settings.value(), &json!({}));
    }

    #[test]
    fn a_rich_file_keeps_everything_down_to_its_spelling() {
        let before = settings(RICH);
        let after = install(&before, COMMAND, 5).unwrap();
        let text = after.settings.text();
        for kept in [
            "    \"permissions\": {\"deny\": [\"Read(./.env)\"], \"allow\": [\"Bash(git *)\",\n        \"Bash(cargo *)\"]},\n",
            "{\"hooks\": [{\"type\": \"command\", \"command\": \"notify-send 'done'\", \"timeout\": 1.50}]}",
            "        \"PostToolUse\": [\n            {\n                \"matcher\": \"Edit|Write\",\n",
            "{\"command\": \"cargo fmt\", \"type\": \"command\", \"async\": true},\n",
            "        \"WorktreeCreate\": [],\n",
            "    \"env\": {\"A\": \"\\u00e4\"}\n}\n",
        ] {
            assert!(text.contains(kept), "{kept}\n{text}");
        }
        let mut last = 0;
        for key in
            ["$schema", "model", "permissions", "hooks", "Stop", "PostToolUse", "WorktreeCreate", "env"]
        {
            let at = text.find(&format!("\"{key}\":")).unwrap();
            assert!(at > last, "{key}");
            last = at;
        }
        assert!(text.contains("\n        \"SessionEnd\": [\n            {\n"), "four spaces: {text}");
        let hooks = &after.settings.value()["hooks"];
        assert_eq!(hooks["Stop"].as_array().unwrap().len(), 2);
        assert_eq!(hooks["PostToolUse"][0], before.value()["hooks"]["PostToolUse"][0]);
        assert_eq!(install(&after.settings, COMMAND, 5).unwrap().settings.text(), text);
        let back = uninstall(&after.settings).unwrap();
        assert_eq!(back.settings.value(), before.value());
        assert!(!uninstall(&before).unwrap().is_changed());
        assert_eq!(uninstall(&before).unwrap().settings.text(), RICH);
    }

    #[test]
    fn a_moved_program_is_replaced_in_place_and_never_doubled() {
        let moved = of(&json!({"hooks": {"Stop": [
            {"matcher": "", "hooks": [
                {"type": "command", "command": "first"},
                {"type": "command", "command": "'/old place/quell' --store x hook", "timeout": 9, "async": true},
            ]},
            {"hooks": [{"type": "command", "command": "/older/quell", "args": ["hook"]}]},
        ], "PreCompact": [{"hooks": [{"command": "/old/quell", "args": ["--store", "a b", "hook"]}]}]}}));
        let seen = status(&moved, Some(COMMAND)).unwrap();
        assert_eq!(seen.duplicates, ["Stop"]);
        assert_eq!(seen.other.len(), 3);
        assert_eq!(
            seen.other.iter().find(|one| one.event == "PreCompact").unwrap().command,
            "/old/quell --store 'a b' hook"
        );
        let after = install(&moved, "'/new place/quell' hook", 5).unwrap();
        assert_eq!((after.replaced.len(), after.removed.len()), (2, 1));
        assert_eq!(
            after.settings.value()["hooks"]["Stop"],
            json!([{"matcher": "", "hooks": [
                {"type": "command", "command": "first"},
                {"type": "command", "command": "'/new place/quell' hook", "timeout": 5, "async": true},
            ]}])
        );
        assert_eq!(
            after.settings.value()["hooks"]["PreCompact"],
            json!([{"hooks": [{"type": "command", "command": "'/new place/quell' hook", "timeout": 5}]}])
        );
        assert!(!install(&after.settings, "'/new place/quell' hook", 5).unwrap().is_changed());
    }

    #[test]
    fn a_matcher_of_the_user_is_kept() {
        let group = |matcher: &str| {
            let mut group = ours("/old/quell hook")[0].clone();
            group["matcher"] = json!(matcher);
            group
        };
        let narrow = of(&json!({"hooks": {"PostToolUse": [group("Bash"), group("Edit"), group("Bash")]}}));
        let after = install(&narrow, COMMAND, 5).unwrap();
        let groups = after.settings.value()["hooks"]["PostToolUse"].as_array().unwrap();
        assert_eq!(groups.iter().map(|group| &group["matcher"]).collect::<Vec<_>>(), ["Bash", "Edit"]);
        let broad = of(&json!({"hooks": {"PostToolUse": [group("Bash"), group("*")]}}));
        let after = install(&broad, COMMAND, 5).unwrap();
        assert_eq!(after.settings.value()["hooks"]["PostToolUse"].as_array().unwrap().len(), 1);
        assert_eq!(after.settings.value()["hooks"]["PostToolUse"][0]["matcher"], "*");
    }

    #[test]
    fn somebodys_own_line_with_our_call_in_it_counts_and_is_left_alone() {
        let line = of(&json!({"hooks": {"Stop": ours("notify me; quell hook")}}));
        let seen = status(&line, Some(COMMAND)).unwrap();
        assert_eq!(seen.among.len(), 1);
        assert!(!seen.missing.contains(&"Stop") && seen.other.is_empty());
        let after = install(&line, COMMAND, 5).unwrap();
        assert_eq!(after.settings.value()["hooks"]["Stop"], ours("notify me; quell hook"));
        assert_eq!(uninstall(&after.settings).unwrap().settings.value(), line.value());
    }

    #[test]
    fn status_tells_of_hooks_that_are_off_or_in_the_wrong_place() {
        let off = of(&json!({"disableAllHooks": true, "hooks": {"WorktreeCreate": ours(COMMAND)}}));
        let seen = status(&off, None).unwrap();
        assert!(seen.disabled && !seen.is_installed());
        assert_eq!(seen.misplaced, ["WorktreeCreate"]);
        assert_eq!(seen.missing.len(), REGISTERED.len());
        assert!(!status(&of(&json!({"disableAllHooks": "true"})), None).unwrap().disabled);
    }

    #[test]
    fn what_was_empty_before_stays() {
        let empty = of(&json!({"hooks": {"Foo": [], "Bar": [{"hooks": []}], "Stop": ours(COMMAND)}}));
        let after = uninstall(&empty).unwrap();
        assert_eq!(after.settings.value(), &json!({"hooks": {"Foo": [], "Bar": [{"hooks": []}]}}));
        assert!(!uninstall(&of(&json!({"hooks": {}}))).unwrap().is_changed());
    }

    #[test]
    fn an_unexpected_shape_is_refused_and_says_where() {
        for (value, place) in [
            (json!({"hooks": []}), "hooks is not an object"),
            (json!({"hooks": {"Stop": {}}}), "hooks.Stop is not an array"),
            (json!({"hooks": {"Stop": [{"hooks": []}, 1]}}), "hooks.Stop[1] is not an object"),
            (json!({"hooks": {"Stop": [{"type": "command"}]}}), "hooks.Stop[0].hooks is not an array"),
            (json!({"hooks": {"Stop": [{"hooks": ["x"]}]}}), "hooks.Stop[0].hooks[0] is not an object"),
            (
                json!({"hooks": {"Stop": [{"matcher": {}, "hooks": []}]}}),
                "hooks.Stop[0].matcher is not a text",
            ),
        ] {
            let errors = [
                install(&of(&value), COMMAND, 5).unwrap_err(),
                uninstall(&of(&value)).unwrap_err(),
                status(&of(&value), None).unwrap_err(),
            ];
            for error in errors {
                assert!(error.to_string().starts_with(place), "{error}");
            }
        }
        for command in ["quell", "echo quell hook", "a; quell hook", "quell hook install"] {
            assert_eq!(install(&settings("{}"), command, 5), Err(Problem::NotOurs), "{command}");
        }
    }

    struct Place {
        folder: tempfile::TempDir,
    }

    impl Place {
        fn new(text: &str) -> Place {
            let place = Place { folder: tempfile::tempdir().unwrap() };
            fs::write(place.path(), text).unwrap();
            place
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("settings.json")
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn put(settings: &Settings) -> Result<Changed, Problem> {
        install(settings, COMMAND, 5)
    }

    #[test]
    fn a_file_is_made_changed_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/.claude/settings.json");
        let applied = apply(&path, put).unwrap();
        assert!(
            applied.changed && applied.backup.is_none() && applied.changes.added.len() == REGISTERED.len()
        );
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let first = fs::read(&path).unwrap();
        let again = apply(&path, put).unwrap();
        assert!(!again.changed && again.backup.is_none());
        assert_eq!(fs::read(&path).unwrap(), first);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let missing = folder.path().join("other/settings.json");
        assert!(!apply(&missing, uninstall).unwrap().changed);
        assert!(!missing.parent().unwrap().exists());
    }

    #[test]
    fn a_copy_is_kept_and_the_mode_stays() {
        let place = Place::new(RICH);
        fs::set_permissions(place.path(), PermissionsExt::from_mode(0o644)).unwrap();
        let applied = apply(&place.path(), put).unwrap();
        let backup = applied.backup.unwrap();
        assert_eq!(fs::read_to_string(&backup).unwrap(), RICH);
        assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o644);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place.path(), Some(12_345), Some(54_321)).unwrap();
            apply(&place.path(), |settings| install(settings, COMMAND, 9)).unwrap();
            let after = fs::metadata(place.path()).unwrap();
            assert_eq!((after.uid(), after.gid(), after.mode() & 0o777), (12_345, 54_321, 0o644));
            fs::remove_file(place.path()).unwrap();
            for name in place.names() {
                fs::remove_file(place.folder.path().join(name)).unwrap();
            }
            fs::write(place.path(), RICH).unwrap();
            apply(&place.path(), put).unwrap();
        }
        assert_eq!(place.names().len(), 2, "{:?}", place.names());
        assert!(place.names()[1].starts_with("settings.json.quell-backup-20"));
        let mut newest = PathBuf::new();
        for number in 0..8 {
            let applied = apply(&place.path(), |settings| install(settings, COMMAND, 10 + number)).unwrap();
            newest = applied.backup.unwrap();
        }
        assert_eq!(place.names().len(), 1 + BACKUPS_MAX);
        assert!(newest.exists());
        assert!(fs::read_to_string(newest).unwrap().contains("\"timeout\": 16"));
    }

    #[test]
    fn a_broken_file_is_not_touched() {
        for text in
            ["{", "[]", "{\n// mine\n}", "{\"hooks\": 1}", "{\"hooks\":{\"Stop\":{}}}", "{\"a\":1,\"a\":2}"]
        {
            let place = Place::new(text);
            for change in [put as fn(&Settings) -> _, uninstall] {
                let error = apply(&place.path(), change).unwrap_err();
                assert!(matches!(error, InstallError::Refused { .. }), "{error}");
                assert!(error.to_string().contains("settings.json is left as it is: "), "{error}");
            }
            assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
            assert_eq!(place.names(), ["settings.json"]);
        }
        let place = Place::new("");
        fs::write(place.path(), b"{\"a\":\"\xff\"}").unwrap();
        assert!(apply(&place.path(), put).unwrap_err().to_string().contains("not UTF-8"));
        fs::remove_file(place.path()).unwrap();
        fs::create_dir(place.path()).unwrap();
        assert!(apply(&place.path(), put).unwrap_err().to_string().contains("not a file"));
    }

    #[test]
    fn a_link_stays_a_link() {
        let place = Place::new("{}");
        let dotfiles = place.folder.path().join("dotfiles");
        fs::create_dir(&dotfiles).unwrap();
        fs::rename(place.path(), dotfiles.join("claude.json")).unwrap();
        std::os::unix::fs::symlink("dotfiles/claude.json", place.path()).unwrap();
        let applied = apply(&place.path(), put).unwrap();
        assert!(fs::symlink_metadata(place.path()).unwrap().is_symlink());
        assert!(read(&dotfiles.join("claude.json")).unwrap().text().contains(COMMAND));
        assert_eq!(fs::read_dir(&dotfiles).unwrap().count(), 1, "the copy is beside the link");
        assert_eq!(applied.backup.unwrap().parent(), Some(place.folder.path()));
        // Also one that leads nowhere yet, and not one in a circle.
        fs::remove_file(dotfiles.join("claude.json")).unwrap();
        assert!(apply(&place.path(), put).unwrap().changed);
        assert!(dotfiles.join("claude.json").exists());
        fs::remove_file(place.path()).unwrap();
        std::os::unix::fs::symlink("settings.json", place.path()).unwrap();
        assert!(apply(&place.path(), put).is_err());
    }

    #[test]
    fn what_somebody_else_writes_meanwhile_is_not_lost() {
        let place = Place::new("{}");
        let calls = Cell::new(0);
        let applied = apply(&place.path(), |settings| {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                fs::write(place.path(), "{\"theirs\": 1}").unwrap();
            }
            put(settings)
        });
        assert_eq!((applied.unwrap().changed, calls.get()), (true, 2));
        let after = read(&place.path()).unwrap();
        assert_eq!(after.value()["theirs"], 1);
        assert!(status(&after, Some(COMMAND)).unwrap().is_installed());
        assert_eq!(place.names().len(), 2, "one copy and nothing temporary: {:?}", place.names());

        let place = Place::new("{}");
        let error = apply(&place.path(), |settings| {
            calls.set(calls.get() + 1);
            fs::write(place.path(), format!("{{\"theirs\": {}}}", calls.get())).unwrap();
            put(settings)
        });
        assert!(matches!(error.unwrap_err(), InstallError::Restless { .. }));
        assert_eq!(place.names(), ["settings.json"]);
        assert_eq!(fs::read_to_string(place.path()).unwrap(), "{\"theirs\": 7}");
    }

    #[test]
    fn installers_at_once_do_not_undo_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".claude/settings.json");
        thread::scope(|scope| {
            for one in REGISTERED {
                let path = &path;
                scope.spawn(move || {
                    apply(path, |settings| install_events(settings, &[*one], COMMAND, 5)).unwrap();
                });
            }
        });
        let after = read(&path).unwrap();
        assert_eq!(status(&after, Some(COMMAND)).unwrap().missing, Vec::<&str>::new());
        let files = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert!(files <= 1 + BACKUPS_MAX, "{files}");
    }

    fn event_name() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "SessionStart",
            "PostToolUse",
            "Stop",
            "SessionEnd",
            "WorktreeCreate",
            "Future",
            "ä\"",
        ])
    }

    fn handler() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-z ]{0,8}".prop_map(|command| json!({"type": "command", "command": command, "timeout": 1.5})),
            Just(json!({"type": "http", "url": "https://x/quell hook"})),
            Just(json!({"type": "command", "command": "notify; quell hook"})),
            Just(json!({"type": "command", "command": "python", "args": ["quell", "hook"]})),
            Just(json!({})),
        ]
    }

    fn group() -> impl Strategy<Value = Value> {
        (prop::option::of("[a-z*|]{0,4}"), prop::collection::vec(handler(), 0..3), any::<bool>()).prop_map(
            |(matcher, hooks, more)| {
                let mut group = json!({ "hooks": hooks });
                if let Some(matcher) = matcher {
                    group["matcher"] = json!(matcher);
                }
                if more {
                    group["unknown"] = json!({"kept": [null, 1.0]});
                }
                group
            },
        )
    }

    /// The text of an object with its keys in this order, written in one of several ways.
    fn file(entries: &[(String, Value)], style: usize) -> String {
        let each = entries.iter().map(|(name, value)| match style {
            0 => format!("{}:{value}", json!(name)),
            1 => format!(
                "\n  {}: {}",
                json!(name),
                serde_json::to_string_pretty(value).unwrap().replace('\n', "\n  ")
            ),
            _ => format!("\n\t{} : {value}", json!(name)),
        });
        let end = if style == 0 { "" } else { "\n" };
        format!("{{{}{end}}}{end}", each.collect::<Vec<_>>().join(","))
    }

    fn original() -> impl Strategy<Value = String> {
        let hooks = prop::collection::btree_map(event_name(), prop::collection::vec(group(), 0..3), 0..4);
        let others = prop::collection::btree_map("[a-g$\"]{1,3}", handler(), 0..4);
        (prop::option::of(hooks), others, any::<prop::sample::Index>(), 0..3usize).prop_map(
            |(hooks, others, at, style)| {
                let mut entries: Vec<(String, Value)> = others.into_iter().rev().collect();
                if let Some(hooks) = hooks {
                    entries.insert(at.index(entries.len() + 1), ("hooks".to_owned(), json!(hooks)));
                }
                file(&entries, style)
            },
        )
    }

    /// An event without groups and hooks without events mean the same as none.
    fn meant(value: &Value) -> Value {
        let mut value = value.clone();
        if let Some(hooks) = value.get_mut("hooks").and_then(Value::as_object_mut) {
            hooks.retain(|_, groups| groups != &json!([]));
            if hooks.is_empty() {
                value.as_object_mut().unwrap().remove("hooks");
            }
        }
        value
    }

    fn keys(settings: &Settings) -> Vec<String> {
        let mut root = Json::Text(settings.text().trim().to_owned());
        let mut names = Vec::new();
        for (name, value) in root.object().unwrap() {
            names.push(name.clone());
            if name == "hooks" {
                names.extend(value.object().unwrap().iter().map(|(event, _)| format!("hooks.{event}")));
            }
        }
        names
    }

    proptest! {
        #[test]
        fn uninstalling_gives_back_what_was_there(text in original(), timeout in 1..100u64) {
            let before = settings(&text);
            prop_assert_eq!(before.text(), text);
            let after = install(&before, COMMAND, timeout).unwrap().settings;
            let seen = status(&after, Some(COMMAND)).unwrap();
            prop_assert!(seen.missing.is_empty() && seen.duplicates.is_empty() && seen.other.is_empty());
            prop_assert!(!install(&after, COMMAND, timeout).unwrap().is_changed());
            let again = settings(&after.text());
            prop_assert_eq!(again.value(), after.value());
            let kept: Vec<String> = keys(&after).into_iter().filter(|name| keys(&before).contains(name)).collect();
            prop_assert_eq!(kept, keys(&before));
            let moved = install(&after, "'/a b/quell' hook", timeout).unwrap().settings;
            prop_assert_eq!(moved.text().matches("/a b/quell").count(), after.text().matches("\"quell hook\"").count());
            for back in [uninstall(&after).unwrap().settings, uninstall(&moved).unwrap().settings] {
                prop_assert_eq!(meant(back.value()), meant(before.value()));
                prop_assert_eq!(status(&back, None).unwrap().among, status(&before, None).unwrap().among);
            }
        }
    }
}
