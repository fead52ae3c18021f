//! `quell hook install`, `uninstall` and `status`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use quell_transcripts::install::{
    self, Changed, InstallError, Problem, Scope, Settings, command_line, install_events, settings_path,
};
use quell_transcripts::shape::{REGISTERED, REGISTERED_NEWER};
use quell_transcripts::spool::Spool;
use serde_json::json;

use super::ForwardArgs;
use crate::args::{Form, Global};
use crate::failure::{self, Failure};
use crate::output::{self, Facts};
use crate::transcripts::{self, Place};

/// In seconds. The hook takes milliseconds; an agent should not wait longer than this whatever happens.
const TIMEOUT_SECONDS: u64 = 5;
/// Lines of the log that `status` shows.
const LOG_LINES: usize = 3;

/// Whose settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Whose {
    /// All sessions of this user (~/.claude/settings.json)
    #[default]
    User,
    /// This folder, for everybody (.claude/settings.json)
    Project,
    /// This folder, for this user (.claude/settings.local.json)
    Local,
}

impl Whose {
    fn path(self) -> Result<PathBuf, Failure> {
        let home = std::env::var_os("HOME").map(PathBuf::from).ok_or_else(|| {
            Failure::new(failure::USAGE, "HOME is not set, so the agent's settings cannot be found")
        })?;
        let own = std::env::var_os("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        let scope = match self {
            Whose::User => Scope::User,
            Whose::Project => Scope::Project,
            Whose::Local => Scope::Local,
        };
        Ok(settings_path(scope, &home, own.as_deref(), &std::env::current_dir()?))
    }
}

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Whose settings are changed
    #[arg(long, value_enum, default_value_t)]
    scope: Whose,
    /// Also events that only newer agents know; an older one then ignores its whole settings file
    #[arg(long)]
    newer_events: bool,
    /// Show what would be changed, and change nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct UninstallArgs {
    /// Whose settings are changed
    #[arg(long, value_enum, default_value_t)]
    scope: Whose,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Whose settings are looked at
    #[arg(long, value_enum, default_value_t)]
    scope: Whose,
    #[command(flatten)]
    form: Form,
}

/// The command that the agent will call: this program by its full path, with the flags that were given.
fn command(forward: &ForwardArgs, print_continue: bool, global: &Global) -> Result<String, Failure> {
    let program = std::env::current_exe()?.display().to_string();
    let mut words = vec![program, "hook".to_owned()];
    if let Some(store) = &global.store {
        let url =
            quell::config::StoreUrl::parse(store).map_err(|problem| Failure::new(failure::USAGE, problem))?;
        let written = match url.kind() {
            quell::config::StoreKind::Sqlite(path) => {
                format!("sqlite:{}", std::path::absolute(path)?.display())
            }
            _ => store.clone(),
        };
        words.extend(["--store".to_owned(), written]);
    }
    let mut file = |flag: &str, path: &Option<PathBuf>| -> Result<(), Failure> {
        if let Some(path) = path {
            words.extend([flag.to_owned(), std::path::absolute(path)?.display().to_string()]);
        }
        Ok(())
    };
    file("--config", &global.config)?;
    file("--token-file", &forward.token_file)?;
    if let Some(server) = &forward.server {
        words.extend(["--server".to_owned(), server.clone()]);
    }
    if print_continue {
        words.push("--print-continue".to_owned());
    }
    Ok(command_line(words.iter().map(String::as_str)))
}

pub(super) fn install(
    args: &InstallArgs,
    forward: &ForwardArgs,
    print_continue: bool,
    global: &Global,
) -> Result<u8, Failure> {
    // Whatever would keep hooks from working is said now, to a person.
    let loaded = transcripts::load(global)?;
    transcripts::wishes(&loaded)?;
    let place = Place::of(&loaded.settings, forward.server(), &loaded.env)?;
    if let Some(file) = &forward.token_file
        && let Err(error) = std::fs::read(file)
    {
        return Err(Failure::new(failure::USAGE, format!("{}: {error}", file.display())));
    }
    let command = command(forward, print_continue, global)?;
    let path = args.scope.path()?;
    let wanted: Vec<_> = match args.newer_events {
        true => REGISTERED.iter().chain(REGISTERED_NEWER).copied().collect(),
        false => REGISTERED.to_vec(),
    };
    let change = |settings: &Settings| install_events(settings, &wanted, &command, TIMEOUT_SECONDS);
    if args.dry_run {
        let changed = install::read(&path).map_err(refused)?;
        let changed = change(&changed).map_err(|problem| unfit(&path, &problem))?;
        tell(&changed);
        output::say(format!("{} was not changed", path.display()));
        return Ok(0);
    }
    let applied = install::apply(&path, change).map_err(refused)?;
    match applied.changed {
        false => output::say(format!("already installed in {}", path.display())),
        true => {
            tell(&applied.changes);
            output::say(format!("installed in {}", path.display()));
        }
    }
    if let Some(backup) = applied.backup {
        output::say(format!("as it was before: {}", backup.display()));
    }
    let kept = match &forward.server {
        Some(server) => format!("sessions are sent to {server}, by way of {}", place.database.display()),
        None => format!("sessions are kept in {}", loaded.settings.store.url),
    };
    output::say(format!(
        "{kept}; sessions that start from now on are captured, and `quell sessions` shows them"
    ));
    Ok(0)
}

fn tell(changed: &Changed) {
    for (what, events) in
        [("added", &changed.added), ("replaced", &changed.replaced), ("removed", &changed.removed)]
    {
        if !events.is_empty() {
            output::say(format!("{what}: {}", events.join(", ")));
        }
    }
}

pub(super) fn uninstall(args: &UninstallArgs) -> Result<u8, Failure> {
    let path = args.scope.path()?;
    let applied = install::apply(&path, install::uninstall).map_err(refused)?;
    match applied.changed {
        false => output::say(format!("nothing of ours is in {}", path.display())),
        true => {
            tell(&applied.changes);
            output::say(format!("taken out of {}; what was captured is kept", path.display()));
        }
    }
    if let Some(backup) = applied.backup {
        output::say(format!("as it was before: {}", backup.display()));
    }
    Ok(0)
}

pub(super) async fn status(args: &StatusArgs, forward: &ForwardArgs, global: &Global) -> Result<u8, Failure> {
    let path = args.scope.path()?;
    let settings = install::read(&path).map_err(refused)?;
    let status = install::status(&settings, None).map_err(|problem| unfit(&path, &problem))?;
    let loaded = transcripts::load(global)?;
    let place = Place::of(&loaded.settings, forward.server(), &loaded.env)?;
    let spooled = !Spool::beside(&place.database).is_empty().unwrap_or(true);
    let log = std::fs::read_to_string(place.journal()).unwrap_or_default();
    let mut last: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
    last.reverse();
    let commands: std::collections::BTreeSet<&str> =
        status.registered.iter().map(|entry| entry.command.as_str()).collect();
    let events: Vec<&str> = status.registered.iter().map(|entry| entry.event.as_str()).collect();
    if args.form.json {
        output::json(&json!({
            "installed": status.is_installed(),
            "settings": path,
            "disabled": status.disabled,
            "events": events,
            "missing": status.missing,
            "missing_newer": status.missing_newer,
            "duplicates": status.duplicates,
            "misplaced": status.misplaced,
            "commands": commands,
            "database": place.database,
            "spool": spooled,
            "log": last,
        }))?;
        return Ok(u8::from(!status.is_installed()));
    }
    let mut facts = Facts::default();
    let state = match (status.is_installed(), status.disabled, status.registered.is_empty()) {
        (true, ..) => "yes".to_owned(),
        (false, true, _) => "switched off: disableAllHooks is true".to_owned(),
        (false, false, true) => "no; `quell hook install` does it".to_owned(),
        (false, false, false) => format!("in part; missing: {}", status.missing.join(", ")),
    };
    facts.add("installed", state);
    facts.add("settings", path.display().to_string());
    if !events.is_empty() {
        facts.add("events", events.join(", "));
    }
    for command in commands {
        facts.add("command", command);
    }
    for (what, names) in [("registered twice", &status.duplicates), ("should not be", &status.misplaced)] {
        if !names.is_empty() {
            facts.add(what, names.join(", "));
        }
    }
    facts.add("database", place.database.display().to_string());
    if spooled {
        facts.add("spool", "events wait beside the database; the next worker brings them in");
    }
    for line in &last {
        facts.add("log", crate::times::one_line(line, 400));
    }
    facts.write()?;
    Ok(u8::from(!status.is_installed()))
}

fn refused(error: InstallError) -> Failure {
    Failure::new(failure::REFUSED, error.to_string())
}

fn unfit(path: &std::path::Path, problem: &Problem) -> Failure {
    Failure::new(failure::REFUSED, format!("{}: {problem}", path.display()))
}
