//! A hook event in milliseconds: before the command line is understood, logging is set up or a runtime is started.
//!
//! An agent calls this hundreds of times an hour and waits for each. So it reads its few flags by hand, writes
//! one line to one file, and leaves the work to a worker: a process that it starts only when no other works on the same file
//! (`keeper.rs` of the application). Whatever happens, it exits with 0 and says nothing.
//!
//! `quell hook keep` is what it starts: a process that starts the worker itself (`quell hook work`) and starts it again if
//! it is killed. So one that dies alone is replaced although no other event comes; the next hook, or any command that
//! looks at sessions, makes up for two.

use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use quell::config::Env;
use quell_transcripts::hook::{self, STDIN_PATIENCE};
use quell_transcripts::journal::Journal;
use quell_transcripts::keeper;
use quell_transcripts::redact::Redactor;
use quell_transcripts::shape::{INPUT_MAX, is_safe_for_continue, read_stdin};

use crate::args::Global;
use crate::failure::Failure;
use crate::transcripts::{self, Place, Target};

/// A worker that ends badly is started again this often, then the next hook has to.
const STARTS_MAX: u32 = 8;
/// The pause before a worker is started again; it doubles each time.
const START_AGAIN: Duration = Duration::from_millis(250);

/// What a command line of a hook may say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Asked {
    store: Option<String>,
    config: Option<PathBuf>,
    server: Option<String>,
    token_file: Option<PathBuf>,
    print_continue: bool,
    keep: bool,
    /// Flags of another release, or mistyped ones.
    not_understood: Vec<String>,
}

/// Words after `hook` that the full command line knows.
const SUBCOMMANDS: [&str; 5] = ["install", "uninstall", "status", "work", "help"];

impl Asked {
    /// Nothing when it is not a hook that is to capture. A flag that nobody knows is left out: the full command line would
    /// refuse it with 2, and that is what tells an agent to stop.
    fn read(args: impl Iterator<Item = OsString>) -> Option<Asked> {
        let mut asked = Asked::default();
        let (mut hook, mut args) = (false, args);
        while let Some(arg) = args.next() {
            let arg = arg.into_string().ok()?;
            let (name, given) = match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut value = || given.clone().or_else(|| args.next()?.into_string().ok());
            match name {
                "hook" if !hook => hook = true,
                "keep" if hook => asked.keep = true,
                "--print-continue" => asked.print_continue = true,
                "--store" | "--config" | "--server" | "--token-file" | "--log" | "--log-format"
                | "--color" => {
                    match (name, value()) {
                        ("--store", Some(url)) => asked.store = Some(url),
                        ("--config", Some(path)) => asked.config = Some(path.into()),
                        ("--server", Some(url)) => asked.server = Some(url),
                        ("--token-file", Some(path)) => asked.token_file = Some(path.into()),
                        // For people, and nobody reads what a hook says.
                        (_, Some(_)) => {}
                        (name, None) => asked.not_understood.push(name.to_owned()),
                    }
                }
                "-h" | "--help" | "-V" | "--version" => return None,
                name if hook && name.starts_with('-') => asked.not_understood.push(name.to_owned()),
                // Perhaps the value of such a flag.
                name if !asked.not_understood.is_empty() && !SUBCOMMANDS.contains(&name) => {}
                _ => return None,
            }
        }
        hook.then_some(asked)
    }

    fn global(&self) -> Global {
        Global { store: self.store.clone(), config: self.config.clone(), ..Global::default() }
    }
}

/// Takes the event in if this is a hook; nothing when the command line is about something else.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let asked = Asked::read(args)?;
    if !asked.not_understood.is_empty() && std::io::stdin().is_terminal() {
        // A person, who is to be told.
        return None;
    }
    // A panic would print to stderr and exit with 101, which an agent shows to its user.
    std::panic::set_hook(Box::new(|_| {}));
    let done = catch_unwind(AssertUnwindSafe(|| match asked.keep {
        true => keep(&asked),
        false => capture(&asked),
    }));
    if done.is_err()
        && let Ok(place) = place(&asked)
    {
        Journal::append(&place.0.journal(), "the hook panicked; the event may be lost");
    }
    Some(ExitCode::SUCCESS)
}

/// Where events go, what must not be kept, and what is wrong with the settings.
fn place(asked: &Asked) -> Result<(Place, Redactor, Vec<String>), Failure> {
    let server = asked.server.clone().map(|url| (url, asked.token_file.clone()));
    let mut problems = Vec::new();
    let (loaded, wrong) = transcripts::load_or_usual(&asked.global(), &Env::from_process())?;
    problems.extend(wrong.map(|failure| format!("{failure}; the usual settings are used")));
    problems.extend(asked.not_understood.iter().map(|flag| format!("{flag} is not understood and left out")));
    let place = Place::of(&loaded.settings, server, &loaded.env)?;
    let patterns = loaded.settings.transcripts.as_ref().map_or(&[][..], |section| &section.redact);
    let redactor = Redactor::new(patterns).unwrap_or_else(|error| {
        problems.push(format!("[transcripts] redact: {error}; only the built-in patterns are used"));
        Redactor::default()
    });
    Ok((place, redactor, problems))
}

fn capture(asked: &Asked) {
    let (place, redactor, problems) = match place(asked) {
        Ok(ready) => ready,
        Err(failure) => {
            // There is no store to tell it beside.
            if let Ok(folder) = transcripts::data_folder(&Env::from_process()) {
                make_folder(&folder);
                Journal::append(&folder.join("hook.log"), &failure.to_string());
            }
            // An agent that cannot write what it has to say would take that for an error.
            let _ = read_stdin(std::io::stdin(), INPUT_MAX, STDIN_PATIENCE);
            return;
        }
    };
    place.database.parent().into_iter().for_each(make_folder);
    let tell = |text: &str| {
        Journal::append(&place.journal(), text);
    };
    problems.iter().for_each(|problem| tell(problem));
    match hook::capture(std::io::stdin(), &place.database, &redactor) {
        Ok(event) if asked.print_continue && is_safe_for_continue(&event) => {
            println!("{{\"continue\":true}}");
        }
        Ok(_) => {}
        Err(error) => return tell(&error.to_string()),
    }
    if let Err(error) = see_that_somebody_works(&place, &asked.global()) {
        tell(&format!("no worker could be started: {error}"));
    }
}

/// What fails here fails again where the event is kept, and is told there.
fn make_folder(folder: &Path) {
    let _ = transcripts::make_folder(folder);
}

/// Starts a worker unless somebody works on the file already.
pub(crate) fn see_that_somebody_works(place: &Place, global: &Global) -> std::io::Result<()> {
    let Some(lock) = keeper::alone(&place.database)? else { return Ok(()) };
    let mut args = vec!["hook".to_owned(), "keep".to_owned()];
    let mut env = Vec::new();
    match &place.target {
        Target::Here => args.extend(["--store".into(), format!("sqlite:{}", place.database.display())]),
        // It may hold a password, and everybody can read command lines.
        Target::Store => env.extend(global.store.clone().map(|url| ("QUELL_STORE", url))),
        Target::Server { url, token_file } => {
            args.extend(["--server".into(), url.clone()]);
            if let Some(file) = token_file {
                let file = std::path::absolute(file)?;
                args.extend(["--token-file".into(), file.display().to_string()]);
            }
        }
    }
    if let Some(config) = &global.config {
        args.extend(["--config".into(), std::path::absolute(config)?.display().to_string()]);
    }
    let folder = place.database.parent().unwrap_or(std::path::Path::new("/"));
    keeper::start(&std::env::current_exe()?, &args, &env, lock, folder)
}

/// Starts the worker, and again when it ends badly. Its standard input is the lock, which it shares with us.
fn keep(asked: &Asked) {
    #[cfg(unix)]
    // The end of the agent's terminal is not ours. Fails only where we lead a group already.
    let _ = rustix::process::setsid();
    let mut pause = START_AGAIN;
    for starts in 1..=STARTS_MAX {
        let ended = start_worker();
        if matches!(&ended, Ok(status) if status.success()) {
            return;
        }
        if let Ok((place, ..)) = place(asked) {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            let then = if starts < STARTS_MAX { "is started again" } else { "is left to the next hook" };
            Journal::append(&place.journal(), &format!("the worker ended with {how} and {then}"));
        }
        if starts == STARTS_MAX {
            // At once: as long as we are here no hook starts anybody.
            return;
        }
        std::thread::park_timeout(pause);
        pause *= 2;
    }
}

fn start_worker() -> std::io::Result<std::process::ExitStatus> {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(keep) = args.iter_mut().find(|arg| *arg == "keep") {
        *keep = "work".into();
    }
    let lock = File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null());
    command.status()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Asked> {
        Asked::read(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn a_hook_is_recognised_wherever_its_flags_stand() {
        assert_eq!(read("hook"), Some(Asked::default()));
        let store = Asked { store: Some("sqlite:x.db".into()), ..Asked::default() };
        assert_eq!(read("--store sqlite:x.db hook"), Some(store.clone()));
        assert_eq!(read("hook --store=sqlite:x.db"), Some(store));
        let server = read("hook --server http://h --token-file t --print-continue").unwrap();
        assert_eq!((server.server.as_deref(), server.print_continue), (Some("http://h"), true));
        assert!(read("hook keep --store sqlite:x.db").unwrap().keep);
    }

    #[test]
    fn a_flag_that_nobody_knows_is_left_out() {
        let asked = read("hook --frobnicate 5 --store sqlite:x.db --new=1 --token-file").unwrap();
        assert_eq!(asked.store.as_deref(), Some("sqlite:x.db"));
        assert_eq!(asked.not_understood, ["--frobnicate", "--new", "--token-file"]);
    }

    #[test]
    fn everything_else_is_left_to_the_full_command_line() {
        for line in [
            "",
            "send hook x",
            "hook install",
            "hook --help",
            "hook work",
            "hook --scope user install",
            "hook status --json",
            "--version",
            "hook hook",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
