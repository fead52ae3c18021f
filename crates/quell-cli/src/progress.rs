//! How far a long piece of work has come: on stderr, and only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// How often a bar without news turns.
const TURN: Duration = Duration::from_millis(100);

/// Bytes that are read or written; without a size, a wheel.
pub(crate) fn bytes(size: Option<u64>) -> ProgressBar {
    match size {
        Some(size) => styled(ProgressBar::new(size), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => styled(ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec}"),
    }
}

/// Things that are done one after the other.
pub(crate) fn counted(total: u64) -> ProgressBar {
    styled(ProgressBar::new(total), "{bar:30} {pos}/{len} {per_sec} {eta}")
}

/// Things that are done in several rounds, with a word about each.
pub(crate) fn phases() -> ProgressBar {
    styled(ProgressBar::new(0), "{msg:24} {bar:30} {pos}/{len} {eta}")
}

/// Work whose length nobody knows, with a word about it.
pub(crate) fn wheel(what: &str) -> ProgressBar {
    let bar = styled(ProgressBar::new_spinner(), "{spinner} {msg}").with_message(what.to_owned());
    bar.enable_steady_tick(TURN);
    bar
}

/// The templates are constants; should one ever be wrong, the default bar is shown.
fn styled(bar: ProgressBar, form: &str) -> ProgressBar {
    match ProgressStyle::with_template(form) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
