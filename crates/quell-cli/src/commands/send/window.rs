//! A window on the command line: `none`, `fixed=65s`, `quiet=2s`, `quiet=2s,max_wait=20s`, with the words of quell.toml.

use std::time::Duration;

use quell::config::DurationText;
use quell::quell_core::window::{Window, WindowPolicy};

const FORMS: &str = "write none, fixed=65s, quiet=2s or quiet=2s,max_wait=20s";

pub(super) fn parse(text: &str) -> Result<WindowPolicy, String> {
    if text == "none" {
        return Ok(WindowPolicy::None);
    }
    let (mut fixed, mut quiet, mut max_wait) = (None, None, None);
    for part in text.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is no window; {FORMS}"))?;
        let place = match name.trim() {
            "fixed" => &mut fixed,
            "quiet" => &mut quiet,
            "max_wait" => &mut max_wait,
            other => return Err(format!("{other:?} is no part of a window; {FORMS}")),
        };
        if place.replace(DurationText::parse(value)?).is_some() {
            return Err(format!("{name} is given twice; {FORMS}"));
        }
    }
    let window = built(fixed, quiet, max_wait).ok_or_else(|| format!("{text:?} is no window; {FORMS}"))?;
    window.check().map_err(|problem| problem.to_string())?;
    Ok(window.policy)
}

fn built(fixed: Option<Duration>, quiet: Option<Duration>, max_wait: Option<Duration>) -> Option<Window> {
    match (fixed, quiet, max_wait) {
        (Some(wait), None, None) => Some(Window::fixed(wait)),
        (None, Some(quiet), None) => Some(Window::quiet(quiet)),
        (None, Some(quiet), Some(max_wait)) => Some(Window::quiet_capped(quiet, max_wait)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn windows_are_written_as_in_the_file() {
        assert_eq!(parse("none"), Ok(WindowPolicy::None));
        assert_eq!(parse("fixed=65s"), Ok(WindowPolicy::Fixed { wait: 65 * S }));
        assert_eq!(parse("quiet=2s"), Ok(WindowPolicy::Quiet { quiet: 2 * S, max_wait: 20 * S }));
        let capped = WindowPolicy::Quiet { quiet: 2 * S, max_wait: 5 * S };
        assert_eq!(parse("quiet=2s, max_wait=5s"), Ok(capped));
    }

    #[test]
    fn anything_else_is_refused_with_the_forms() {
        for bad in
            ["", "soon", "quiet", "quiet=", "max_wait=5s", "fixed=1s,quiet=1s", "quiet=1s,quiet=2s", "hour=1"]
        {
            let text = parse(bad).unwrap_err();
            assert!(text.contains("fixed=65s") || text.contains("duration"), "{bad}: {text}");
        }
        assert!(parse("quiet=20s,max_wait=2s").is_err(), "a cap below the quiet period");
    }
}
