//! Why a command did not do what was asked, and the exit code that says so.
//!
//! The codes are part of the interface (`docs/reference/cli.md`): scripts decide by them. The text is for people: what
//! happened, where, and what to do.

use std::fmt;
use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize;
use quell::config::ConfigError;
use quell::endpoints::EndpointError;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::quell_core::event::Invalid;
use quell::{EngineError, OpenError, ProgramError};

pub(crate) const FAILED: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const NOT_FOUND: u8 = 3;
pub(crate) const REFUSED: u8 = 4;
pub(crate) const STORE: u8 = 5;
/// What `send --wait` waited for did not succeed: its run failed, was cancelled, or has not ended in time.
pub(crate) const RUN_FAILED: u8 = 6;
pub(crate) const RUN_CANCELLED: u8 = 7;
pub(crate) const NOT_YET: u8 = 8;

#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
    /// What to do about it.
    help: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Failure { code, text: text.into(), help: None }
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Says it on stderr; the exit code is the answer.
    pub(crate) fn report(&self) -> ExitCode {
        if !self.text.is_empty() {
            anstream::eprintln!("{} {}", "error:".red().bold(), self.text);
        }
        if let Some(help) = &self.help {
            anstream::eprintln!(" {} {help}", "help:".bold());
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Whoever read our output has seen enough (`quell lanes | head`); that is no failure.
            io::ErrorKind::BrokenPipe => Failure::new(0, ""),
            _ => Failure::new(FAILED, error.to_string()),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Failure::new(USAGE, error.to_string())
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Failure::new(USAGE, invalid.to_string())
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Memory(_)
            | OpenError::NoBackup { .. }
            | OpenError::NotBuiltIn { .. }
            | OpenError::Several { .. } => Failure::new(USAGE, error.to_string()),
            OpenError::Failed { .. } => Failure::new(STORE, error.to_string())
                .help("the store is chosen by --store, QUELL_STORE or `store` in quell.toml"),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::new(code_of(&error), error.to_string())
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::UnknownQueue { .. } => {
                Failure::new(NOT_FOUND, error.to_string()).help("add a section [queues.NAME] to quell.toml")
            }
            EngineError::NoHandler { .. }
            | EngineError::NotPulled { .. }
            | EngineError::BadHandler { .. } => Failure::new(USAGE, error.to_string()),
            EngineError::Invalid(invalid) => invalid.into(),
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        Failure::new(USAGE, error.to_string())
            .help("secrets are found by secret_file and secret_env of [endpoints.NAME] in quell.toml")
    }
}

impl From<ProgramError> for Failure {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Config(error) => error.into(),
            ProgramError::Open(error) => error.into(),
            ProgramError::Engine(error) => error.into(),
            ProgramError::Store(error) => error.into(),
            other => Failure::new(FAILED, other.to_string()),
        }
    }
}

pub(crate) fn code_of(error: &StoreError) -> u8 {
    match error.kind {
        ErrorKind::Invalid => USAGE,
        ErrorKind::NotFound => NOT_FOUND,
        ErrorKind::Limit
        | ErrorKind::Full
        | ErrorKind::Conflict
        | ErrorKind::NotIdle
        | ErrorKind::LostLease
        | ErrorKind::AlreadySettled => REFUSED,
        ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Corrupt => STORE,
    }
}
