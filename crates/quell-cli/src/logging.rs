//! Log lines: to stderr, as text for people or JSON for programs.
//!
//! The level is `--log`, else `QUELL_LOG`, else `RUST_LOG`, else `info` for processes that stay and `warn` for commands
//! that answer and end.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::args::{Color, Global, LogFormat};
use crate::failure::{self, Failure};

pub(crate) fn start(global: &Global, default: &str) -> Result<(), Failure> {
    let (text, from) = level(global, default);
    let filter = EnvFilter::builder().parse(&text).map_err(|problem| {
        Failure::new(failure::USAGE, format!("{from}: {text:?} is not a log level: {problem}"))
            .help("write error, warn, info, debug or trace, or a filter such as quell=debug")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match global.log_format {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => builder.with_ansi(colours(global.color)).with_target(false).init(),
    }
    Ok(())
}

fn level(global: &Global, default: &str) -> (String, &'static str) {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    if let Some(text) = &global.log {
        return (text.clone(), "--log");
    }
    if let Some(text) = variable("QUELL_LOG") {
        return (text, "environment variable QUELL_LOG");
    }
    if let Some(text) = variable("RUST_LOG") {
        return (text, "environment variable RUST_LOG");
    }
    (default.to_owned(), "default")
}

/// The log writes its own colours, so it asks what everything else asks.
fn colours(color: Color) -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::io::stderr().is_terminal() && !forbidden,
    }
}
