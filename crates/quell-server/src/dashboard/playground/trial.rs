//! One trial of the playground, from the fields of its form: arrivals, the window, how long a handler takes.

use std::time::Duration;

use quell::config::{DurationText, Settings};
use quell::quell_core::event::QueueName;
use quell::quell_core::limits as core_limits;
use quell::quell_core::window::{Window, WindowPolicy};
use serde::Deserialize;

use super::recorded::Recorded;
use crate::dashboard::view::filled;
use crate::error::{Answer, Problem};
use crate::limits;

/// Two bursts and a straggler, for those who come for the first time.
const EXAMPLE: &str = "0 0.4 0.7 1.1 1.3 2 6 6.2 6.4 6.9 12";
/// Where nobody says otherwise, the axis shows so many seconds.
const SPAN: Duration = Duration::from_secs(20);

/// The form, as it is sent.
#[derive(Debug, Default, Clone, Deserialize)]
pub(in crate::dashboard) struct Fields {
    /// A lane whose arrivals are taken in place of written ones.
    pub(super) queue: Option<String>,
    pub(super) key: Option<String>,
    pub(super) tenant: Option<String>,
    arrivals: Option<String>,
    window: Option<String>,
    quiet: Option<String>,
    max_wait: Option<String>,
    fixed: Option<String>,
    max_events: Option<String>,
    handling: Option<String>,
    span: Option<String>,
}

/// A trial, with its fields as they are shown again.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) queue: String,
    pub(super) arrivals: Vec<Duration>,
    pub(super) window: Window,
    pub(super) handling: Duration,
    /// How much time the picture shows at the least.
    pub(super) span: Duration,
    pub(super) shown: Shown,
}

/// The texts in the form.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    pub(super) arrivals: String,
    pub(super) window: String,
    pub(super) quiet: String,
    pub(super) max_wait: String,
    pub(super) fixed: String,
    pub(super) max_events: String,
    pub(super) handling: String,
    pub(super) span: String,
}

impl Trial {
    /// What is not written is as the queue has it, or as it is by default.
    pub(super) fn read(fields: &Fields, recorded: Option<&Recorded>, settings: &Settings) -> Answer<Trial> {
        let shown = Shown::of(fields, usual_window(fields, settings));
        let arrivals = match recorded {
            Some(recorded) => recorded.arrivals.clone(),
            None => arrivals(&shown.arrivals)?,
        };
        let policy = match shown.window.as_str() {
            "none" => WindowPolicy::None,
            "fixed" => WindowPolicy::Fixed { wait: duration("fixed", &shown.fixed)? },
            "quiet" => WindowPolicy::Quiet {
                quiet: duration("quiet", &shown.quiet)?,
                max_wait: duration("max_wait", &shown.max_wait)?,
            },
            other => {
                let detail = format!("there is no window {other:?}: it is quiet, fixed or none");
                return Err(Problem::bad_request(detail).at("window"));
            }
        };
        let max_events: u32 = shown.max_events.parse().map_err(|_| {
            Problem::bad_request(format!("max_events is a number, and {:?} is none", shown.max_events))
                .at("max_events")
        })?;
        let window = Window { policy, max_events, max_bytes: core_limits::BATCH_BYTES_DEFAULT };
        window.check().map_err(|problem| Problem::bad_request(problem.to_string()).at("window"))?;
        let handling = duration("handling", &shown.handling)?.min(limits::PLAYGROUND_HANDLING);
        let span = duration("span", &shown.span)?.min(limits::PLAYGROUND_SPAN);
        Ok(Trial { queue: queue_of(fields), arrivals, window, handling, span, shown })
    }

    /// The form as it was sent, where it makes no sense.
    pub(super) fn as_written(fields: &Fields) -> Trial {
        let shown = Shown::of(fields, Window::default());
        Trial {
            queue: queue_of(fields),
            arrivals: Vec::new(),
            window: Window::default(),
            handling: Duration::ZERO,
            span: SPAN,
            shown,
        }
    }

    pub(super) fn is_window(&self, word: &str) -> bool {
        self.shown.window == word
    }

    /// The section of quell.toml that has these settings.
    pub(super) fn toml(&self) -> String {
        let show = DurationText::show;
        let window = match self.window.policy {
            WindowPolicy::None => "\"none\"".to_owned(),
            WindowPolicy::Fixed { wait } => format!("{{ fixed = \"{}\" }}", show(wait)),
            WindowPolicy::Quiet { quiet, max_wait } => {
                format!("{{ quiet = \"{}\", max_wait = \"{}\" }}", show(quiet), show(max_wait))
            }
        };
        let mut text = format!("[queues.{}]\nwindow = {window}\n", toml_name(&self.queue));
        if self.window.max_events != core_limits::BATCH_EVENTS_DEFAULT {
            text += &format!("max_events = {}\n", self.window.max_events);
        }
        text
    }
}

impl Shown {
    fn of(fields: &Fields, usual: Window) -> Shown {
        let text =
            |field: &Option<String>, usual: &str| filled(field.as_ref()).unwrap_or_else(|| usual.to_owned());
        let show = DurationText::show;
        let (word, quiet, max_wait, fixed) = match usual.policy {
            WindowPolicy::None => ("none", "2s".to_owned(), "20s".to_owned(), "5s".to_owned()),
            WindowPolicy::Fixed { wait } => ("fixed", "2s".to_owned(), "20s".to_owned(), show(wait)),
            WindowPolicy::Quiet { quiet, max_wait } => {
                ("quiet", show(quiet), show(max_wait), "5s".to_owned())
            }
        };
        // A field that was emptied on purpose is not the example.
        let arrivals = fields.arrivals.clone().unwrap_or_else(|| EXAMPLE.to_owned());
        Shown {
            arrivals,
            window: text(&fields.window, word),
            quiet: text(&fields.quiet, &quiet),
            max_wait: text(&fields.max_wait, &max_wait),
            fixed: text(&fields.fixed, &fixed),
            max_events: text(&fields.max_events, &usual.max_events.to_string()),
            handling: text(&fields.handling, "0s"),
            span: text(&fields.span, &show(SPAN)),
        }
    }
}

fn queue_of(fields: &Fields) -> String {
    filled(fields.queue.as_ref()).unwrap_or_else(|| "chat".to_owned())
}

/// That of the queue, if it is named and known; else two seconds of quiet, which can be seen in the picture.
fn usual_window(fields: &Fields, settings: &Settings) -> Window {
    let named = filled(fields.queue.as_ref()).and_then(|name| QueueName::new(name).ok());
    let known = named.and_then(|name| settings.queue(&name)).map(|queue| queue.append.window);
    known.unwrap_or_else(|| Window::quiet_capped(Duration::from_secs(2), Duration::from_secs(10)))
}

/// A queue's name has dots, which TOML reads as tables of their own.
fn toml_name(queue: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !queue.is_empty() && queue.chars().all(plain) { queue.to_owned() } else { format!("{queue:?}") }
}

fn duration(field: &'static str, text: &str) -> Answer<Duration> {
    DurationText::parse(text).map_err(|problem| Problem::bad_request(problem).at(field))
}

/// Moments, separated by spaces, commas or line breaks: seconds, or with a unit.
fn arrivals(text: &str) -> Answer<Vec<Duration>> {
    let parts = text.split([' ', ',', ';', '\n', '\r', '\t']).filter(|part| !part.is_empty());
    let mut all = Vec::new();
    for part in parts {
        if all.len() == limits::PLAYGROUND_EVENTS {
            let detail = format!("these are more than {} arrivals", limits::PLAYGROUND_EVENTS);
            return Err(Problem::bad_request(detail).at("arrivals"));
        }
        all.push(moment(part)?);
    }
    all.sort_unstable();
    Ok(all)
}

fn moment(part: &str) -> Answer<Duration> {
    let plain = part.parse::<f64>().ok();
    let read = match plain {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => DurationText::parse(part).ok(),
    };
    let fits = |at: &Duration| *at <= limits::PLAYGROUND_SPAN;
    read.filter(fits).map(|at| Duration::from_millis(u64::try_from(at.as_millis()).unwrap_or(0))).ok_or_else(
        || {
            let detail = format!("{part:?} is no moment: write seconds such as 0.4, or 400ms, up to 31 days");
            Problem::bad_request(detail).at("arrivals")
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_seconds_or_have_a_unit_and_are_put_in_order() {
        let read: Vec<u128> =
            arrivals("2, 0.4;400ms\n1m 0").unwrap().iter().map(Duration::as_millis).collect();
        assert_eq!(read, [0, 400, 400, 2_000, 60_000]);
        assert_eq!(arrivals("  ").unwrap(), Vec::<Duration>::new());
        for bad in ["-1", "NaN", "inf", "1e300", "400d", "<b>", "1 2 three"] {
            assert!(arrivals(bad).is_err(), "{bad}");
        }
        let many = "1 ".repeat(limits::PLAYGROUND_EVENTS);
        assert!(arrivals(&many).is_ok() && arrivals(&(many + "1")).is_err());
    }

    #[test]
    fn the_toml_can_be_taken_as_it_is() {
        let fields = |queue: &str, window: &str, max_events: &str| Fields {
            queue: Some(queue.to_owned()),
            window: Some(window.to_owned()),
            max_events: Some(max_events.to_owned()),
            ..Fields::default()
        };
        let env = std::collections::BTreeMap::new();
        let input =
            quell::config::SettingsInput { config: None, env: &env, flags: quell::config::Flags::default() };
        let settings = Settings::resolve(input).unwrap();
        for (queue, window, max_events) in
            [("chat", "quiet", "7"), ("a.b", "fixed", "1000"), ("x", "none", "1")]
        {
            let trial = Trial::read(&fields(queue, window, max_events), None, &settings).unwrap();
            let config = quell::config::Config::parse(&trial.toml(), "quell.toml").unwrap();
            let source = quell::config::SourceText { name: "quell.toml".into(), text: trial.toml().into() };
            let input = quell::config::SettingsInput {
                config: Some((config, source)),
                env: &env,
                flags: quell::config::Flags::default(),
            };
            let read = Settings::resolve(input).unwrap();
            let queue = read.queue(&QueueName::new(queue).unwrap()).unwrap();
            assert_eq!(queue.append.window, trial.window, "{}", trial.toml());
        }
        let refused = Trial::read(&fields("chat", "loud", "7"), None, &settings).unwrap_err();
        assert!(refused.detail().contains("quiet, fixed or none"));
    }
}
