//! One queue, from `[queues.NAME]` to its policies.
//!
//! Here stand the checks that need more than one value: a window that cannot close, a first wait above the longest
//! one. Handlers are next door in `handler.rs`, rules about newer events and failure in `policy.rs`. Queues of applications have
//! defaults of their own where the application is there. Two take them from names of older systems in the environment: `collect`
//! its lease from `JOB_LOCK_TIMEOUT_SECONDS`, `transcripts` its window from `DEBOUNCE_SECONDS` and a lease of thirty such windows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::{AppendPolicy, QueueName, SourceName};
use quell_core::limits;
use quell_core::retry::{RetryPolicy, RetryProblem};
use quell_core::source::Declaration;
use quell_core::store::RunPolicy;
use quell_core::window::{Window, WindowPolicy, WindowProblem};
use quell_fetch::Guard;

use super::chat::{CHAT, CHAT_FAILED};
use super::error::{ConfigError, nearest};
use super::handler::resolve_handler;
use super::policy::{self, NotifyWish};
use super::prices::{COLLECT, COLLECT_TEST, COLLECT_VALUE};
use super::raw::{QueueConfig, RetryConfig, WindowConfig};
use super::resolver::{Found, Resolver};
use super::value::{DurationText, SizeText, WordOr, Written};
use super::{ByTenant, HandlerSettings, OnError, Origin, QueueSettings};

/// The lease of `collect`, as the job queue that it replaces had it.
const COLLECT_LEASE: Duration = Duration::from_secs(300);
/// The queue that hooks of coding agents append to.
pub(super) const TRANSCRIPTS: &str = "transcripts";
/// A transcript that does not exist yet is looked for ten times; the rest is for workers that were killed, each of which costs
/// an attempt.
const TRANSCRIPTS_ATTEMPTS: u32 = 30;
/// A customer waits: after three minutes of tries a person is asked. While a breaker is open no try is made or counted.
const CHAT_RETRY: RetryPolicy = RetryPolicy {
    base: Duration::from_secs(2),
    factor: 2.0,
    cap: Duration::from_secs(60),
    attempts: 8,
    jitter: 0.2,
};
/// Several sources are collected in one go: the value is made once, and not long after the first of them.
const VALUE_WINDOW: WindowPolicy =
    WindowPolicy::Quiet { quiet: Duration::from_secs(2), max_wait: Duration::from_secs(20) };
/// The window of `transcripts`.
const DEBOUNCE_DEFAULT: Duration = Duration::from_secs(2);
/// A lease of `transcripts` is this many of its windows, as the lock files that it replaces had it.
const DEBOUNCES_PER_LEASE: u32 = 30;

/// What queues take from outside their own section.
pub(super) struct QueueSources {
    worker_concurrency: usize,
    /// What `[sources]` declares.
    declared: Vec<Declaration>,
    /// What `[outbound]` allows.
    guard: Guard,
    debounce: Option<Found<Duration>>,
    job_lock_timeout: Option<Found<Duration>>,
    applications: Applications,
}

/// Which applications the file has a section of. Without it the names of their queues are free for anybody, but for
/// `transcripts`, which hooks of coding agents append to without asking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applications {
    pub(super) chat: bool,
    pub(super) prices: bool,
}

impl Applications {
    fn has(self, queue: &str) -> bool {
        match queue {
            TRANSCRIPTS => true,
            CHAT | CHAT_FAILED => self.chat,
            COLLECT | COLLECT_TEST | COLLECT_VALUE => self.prices,
            _ => false,
        }
    }
}

impl QueueSources {
    /// Reads the older names even if no queue uses them: a bad value is refused, not kept for a surprise.
    pub(super) fn read(
        r: &Resolver<'_>,
        worker_concurrency: usize,
        declared: Vec<Declaration>,
        guard: Guard,
        applications: Applications,
    ) -> Result<Self, ConfigError> {
        let seconds = |name| {
            let Some(found) = r.env(name) else { return Ok(None) };
            let value = parse_seconds(found.value).map_err(|problem| r.error(&found, problem))?;
            Ok(Some(Found { value, origin: found.origin, span: found.span }))
        };
        Ok(QueueSources {
            worker_concurrency,
            declared,
            guard,
            debounce: seconds("DEBOUNCE_SECONDS")?,
            job_lock_timeout: seconds("JOB_LOCK_TIMEOUT_SECONDS")?,
            applications,
        })
    }
}

/// `shown` is the name in `quell check`; it is `*` for the queue that stands for any name. Whom to notify is given back as
/// a wish, to be joined with its queue when all are known.
pub(super) fn resolve_queue(
    r: &mut Resolver<'_>,
    sources: &QueueSources,
    shown: &str,
    name: QueueName,
    mut file: QueueConfig,
) -> Result<(QueueSettings, Option<NotifyWish>), ConfigError> {
    let path = |setting: &str| format!("queues.{shown}.{setting}");
    let defaults = QueueSettings::defaults(name.clone());
    let transcripts = name.as_str() == TRANSCRIPTS;
    let application = sources.applications.has(name.as_str());

    let debounce = if transcripts { sources.debounce.clone() } else { None };
    let usual = match name.as_str() {
        TRANSCRIPTS => WindowPolicy::Fixed { wait: DEBOUNCE_DEFAULT },
        // What could not be answered is told at once.
        CHAT_FAILED => WindowPolicy::None,
        COLLECT | COLLECT_TEST if application => WindowPolicy::None,
        COLLECT_VALUE if application => VALUE_WINDOW,
        _ => Window::default().policy,
    };
    let wait = window_policy(r, &path("window"), debounce, file.window.take(), usual)?;
    let usual = defaults.append.window;
    let alone = application && [COLLECT, COLLECT_TEST].contains(&name.as_str());
    let (count, count_max) = match alone {
        true => (1, 1),
        false => (usual.max_events, limits::BATCH_EVENTS_MAX),
    };
    let max_events = r
        .integer(&path("max_events"), None, &[], file.max_events.take(), count.into(), 1..=count_max.into())
        .map_err(|error| match alone {
            true => error.help("remove it: with [prices] each request is a run of its own"),
            false => error,
        })?;
    let max_bytes =
        size(r, &path("max_bytes"), file.max_bytes.take(), usual.max_bytes, limits::BATCH_BYTES_MAX)?;
    let payload_default = as_u64(limits::PAYLOAD_BYTES_DEFAULT);
    let payload_max = as_u64(limits::PAYLOAD_BYTES_MAX);
    let max_payload = size(r, &path("max_payload"), file.max_payload.take(), payload_default, payload_max)?;
    let lane_default = i64::try_from(limits::LANE_EVENTS_DEFAULT).unwrap_or(i64::MAX);
    let lane_max = i64::try_from(limits::LANE_EVENTS_MAX).unwrap_or(i64::MAX);
    let lane_events = r.integer(
        &path("max_lane_events"),
        None,
        &[],
        file.max_lane_events.take(),
        lane_default,
        1..=lane_max,
    )?;
    let max_waiting = bound(r, &path("max_waiting"), file.max_waiting.take(), i64::MAX)?;
    let overflow = policy::overflow(r, &path("overflow"), file.overflow.take())?;
    let content_dedupe = switch(r, &path("content_dedupe"), file.content_dedupe.take());
    let rules = policy::run_rules(r, &path, &mut file)?;
    let usual = match name.as_str() {
        TRANSCRIPTS => RetryPolicy { attempts: TRANSCRIPTS_ATTEMPTS, ..RetryPolicy::default() },
        CHAT | CHAT_FAILED if application => CHAT_RETRY,
        // Whoever tries a source waits for what it says.
        COLLECT_TEST if application => RetryPolicy { attempts: 1, ..RetryPolicy::default() },
        _ => RetryPolicy::default(),
    };
    let retry = retry(r, &path("retry"), file.retry, usual)?;
    let words = [("failed", OnError::Failed), ("retry", OnError::Retry)];
    let on_error = policy::word(r, &path("on_error"), file.on_error, &words)?;
    let lease = lease(r, &path("lease"), sources, name.as_str(), wait, file.lease)?;
    let most = i64::try_from(limits::CONCURRENCY_MAX).unwrap_or(i64::MAX);
    let usual = i64::try_from(sources.worker_concurrency).unwrap_or(i64::MAX);
    let concurrency = r.integer(&path("concurrency"), None, &[], file.concurrency, usual, 1..=most)?;
    let max_running = bound(r, &path("max_running"), file.max_running, 1_000_000)?;
    let usual = if application { HandlerSettings::App } else { HandlerSettings::Log };
    let handler = resolve_handler(r, &path("handler"), &sources.guard, file.handler, usual)?;
    let notify = policy::notify(r, &path("notify"), &name, file.notify)?;
    let source = governed_by(r, &path("source"), file.source, &sources.declared)?;

    let window = Window { policy: wait, max_events: as_u32(max_events), max_bytes };
    let settings = QueueSettings {
        name,
        append: Arc::new(AppendPolicy {
            window,
            payload_bytes: usize::try_from(max_payload).unwrap_or(usize::MAX),
            lane_events: u64::try_from(lane_events).unwrap_or(u64::MAX),
            overflow,
            content_dedupe,
            source,
        }),
        run: Arc::new(RunPolicy {
            lease,
            max_attempts: retry.attempts,
            max_running: max_running.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
            rules,
            notify: None,
        }),
        retry,
        on_error,
        concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
        max_waiting,
        handler,
        tenants: ByTenant::default(),
    };
    Ok((settings, notify))
}

/// A number that need not be given: none is no bound.
fn bound(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<i64>>,
    most: i64,
) -> Result<Option<u64>, ConfigError> {
    match file {
        Some(written) => {
            let n = r.integer(setting, None, &[], Some(written), 1, 1..=most)?;
            Ok(u64::try_from(n).ok())
        }
        None => {
            r.note(setting, "no bound", &Origin::Default);
            Ok(None)
        }
    }
}

/// The source of a queue; it must be declared in the same file.
fn governed_by(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<String>>,
    declared: &[Declaration],
) -> Result<Option<SourceName>, ConfigError> {
    let Some(written) = file else {
        r.note(setting, "none", &Origin::Default);
        return Ok(None);
    };
    let found = r.placed(written);
    let Some(known) = declared.iter().find(|d| d.name.as_str() == found.value) else {
        let help = match nearest(&found.value, declared.iter().map(|d| d.name.as_str())) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("add a section [sources.{}]", found.value),
        };
        return Err(r.error(&found, format!("there is no source {:?}", found.value)).help(help));
    };
    r.note(setting, known.name.as_str(), &found.origin);
    Ok(Some(known.name.clone()))
}

pub(super) fn switch(r: &mut Resolver<'_>, setting: &str, file: Option<Written<bool>>) -> bool {
    let found = match file {
        Some(written) => r.placed(written),
        None => Found { value: false, origin: Origin::Default, span: 0..0 },
    };
    r.note(setting, found.value.to_string(), &found.origin);
    found.value
}

fn window_policy(
    r: &mut Resolver<'_>,
    setting: &str,
    debounce: Option<Found<Duration>>,
    file: Option<Written<WindowConfig>>,
    usual: WindowPolicy,
) -> Result<WindowPolicy, ConfigError> {
    let found = match (debounce, file) {
        (Some(env), _) => {
            let policy = match env.value {
                Duration::ZERO => WindowPolicy::None,
                wait => WindowPolicy::Fixed { wait },
            };
            Found { value: policy, origin: env.origin, span: env.span }
        }
        (None, Some(written)) => {
            let found = r.placed(written);
            let policy = written_policy(r, &found)?;
            Found { value: policy, origin: found.origin, span: found.span }
        }
        (None, None) => Found { value: usual, origin: Origin::Default, span: 0..0 },
    };
    // The bounds of a batch are checked on their own; here only the times count.
    Window { policy: found.value, ..Window::default() }.check().map_err(|problem| {
        let error = r.error(&found, problem.to_string());
        match problem {
            WindowProblem::CapBelowQuiet { quiet, .. } => {
                error.help(format!("make max_wait {} or longer, or leave it out", DurationText::show(quiet)))
            }
            WindowProblem::TooLong(_) => error.help("max_wait is 10 × quiet unless it is written"),
            _ => error,
        }
    })?;
    r.note(setting, show_policy(found.value), &found.origin);
    Ok(found.value)
}

/// The table or the word of the file; impossible mixtures are refused.
fn written_policy(r: &Resolver<'_>, found: &Found<WindowConfig>) -> Result<WindowPolicy, ConfigError> {
    let forms = "write \"none\", { fixed = \"65s\" } or { quiet = \"2s\", max_wait = \"20s\" }";
    let parts = match &found.value {
        WordOr::Word(word) if word == "none" => return Ok(WindowPolicy::None),
        WordOr::Word(word) => return Err(r.error(found, format!("{word:?} is no window")).help(forms)),
        WordOr::Table(parts) => parts.clone(),
    };
    let millis = |written: &Written<DurationText>| written.value.0;
    match (&parts.quiet, &parts.max_wait, &parts.fixed) {
        (Some(quiet), None, None) => Ok(Window::quiet(millis(quiet)).policy),
        (Some(quiet), Some(cap), None) => Ok(Window::quiet_capped(millis(quiet), millis(cap)).policy),
        (None, None, Some(wait)) => Ok(WindowPolicy::Fixed { wait: millis(wait) }),
        (Some(_), _, Some(_)) => Err(r.error(found, "a window is quiet or fixed, not both").help(forms)),
        (None, Some(_), _) => Err(r.error(found, "max_wait belongs to a quiet window").help(forms)),
        (None, None, None) => Err(r.error(found, "the window says neither quiet nor fixed").help(forms)),
    }
}

fn show_policy(policy: WindowPolicy) -> String {
    match policy {
        WindowPolicy::None => "none".to_owned(),
        WindowPolicy::Fixed { wait } => format!("{{ fixed = \"{}\" }}", DurationText::show(wait)),
        WindowPolicy::Quiet { quiet, max_wait } => {
            let (quiet, max_wait) = (DurationText::show(quiet), DurationText::show(max_wait));
            format!("{{ quiet = \"{quiet}\", max_wait = \"{max_wait}\" }}")
        }
    }
}

fn lease(
    r: &mut Resolver<'_>,
    setting: &str,
    sources: &QueueSources,
    name: &str,
    policy: WindowPolicy,
    file: Option<Written<DurationText>>,
) -> Result<Duration, ConfigError> {
    let bounds = limits::LEASE_MIN..=limits::LEASE_MAX;
    let default = match (name, policy) {
        (COLLECT, _) => COLLECT_LEASE,
        // Without a window there is nothing to multiply, and the general default holds.
        (TRANSCRIPTS, WindowPolicy::Fixed { wait }) => {
            wait.saturating_mul(DEBOUNCES_PER_LEASE).clamp(limits::LEASE_MIN, limits::LEASE_MAX)
        }
        _ => limits::LEASE_DEFAULT,
    };
    match &sources.job_lock_timeout {
        Some(found) if name == COLLECT => r.within(setting, found.clone(), bounds, DurationText::show),
        _ => r.duration(setting, None, &[], file, default, bounds),
    }
}

fn retry(
    r: &mut Resolver<'_>,
    setting: &str,
    file: RetryConfig,
    usual: RetryPolicy,
) -> Result<RetryPolicy, ConfigError> {
    let path = |name: &str| format!("{setting}.{name}");
    let (base_at, cap_at) = (file.base.clone(), file.cap.clone());
    let longest = limits::RETRY_AFTER_MAX;
    let attempts_max = i64::from(limits::ATTEMPTS_MAX);
    let base = r.duration(&path("base"), None, &[], file.base, usual.base, Duration::ZERO..=longest)?;
    let factor = float(r, &path("factor"), file.factor, usual.factor, 1.0..=100.0)?;
    let cap = r.duration(&path("cap"), None, &[], file.cap, usual.cap, Duration::ZERO..=longest)?;
    let attempts =
        r.integer(&path("attempts"), None, &[], file.attempts, usual.attempts.into(), 1..=attempts_max)?;
    let jitter = float(r, &path("jitter"), file.jitter, usual.jitter, 0.0..=1.0)?;

    let policy = RetryPolicy { base, factor, cap, attempts: as_u32(attempts), jitter };
    policy.check().map_err(|problem| {
        // Base and cap can only disagree if the file gave one of them; that one is marked.
        let default = Found { value: (), origin: Origin::Default, span: 0..0 };
        let place = match base_at.or(cap_at) {
            Some(written) => r.placed(Written { value: (), span: written.span }),
            None => default,
        };
        let error = r.error(&place, format!("retry: {problem}"));
        match problem {
            RetryProblem::BaseAboveCap { base, cap } => {
                let (base, cap) = (DurationText::show(base), DurationText::show(cap));
                error.help(format!("base is {base} and cap is {cap}; set both, base not above cap"))
            }
            _ => error,
        }
    })?;
    Ok(policy)
}

pub(super) fn size(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<SizeText>>,
    default: u64,
    most: u64,
) -> Result<u64, ConfigError> {
    let found = match file.map(|written| r.placed(written)) {
        Some(found) => Found { value: found.value.0, origin: found.origin, span: found.span },
        None => Found { value: default, origin: Origin::Default, span: 0..0 },
    };
    r.within(setting, found, 1..=most, SizeText::show)
}

fn float(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<f64>>,
    default: f64,
    bounds: std::ops::RangeInclusive<f64>,
) -> Result<f64, ConfigError> {
    let default = Found { value: default, origin: Origin::Default, span: 0..0 };
    let found = file.map(|written| r.placed(written)).unwrap_or(default);
    r.within(setting, found, bounds, |n| n)
}

/// The older systems wrote plain seconds, with decimals if they liked.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let problem = || format!("{text:?} is not a number of seconds, 0 or more; write for example 2 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| problem())?;
    let exact = Duration::try_from_secs_f64(seconds).map_err(|_| problem())?;
    let millis = quell_core::clock::millis(exact);
    Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
}

fn as_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn as_u32(n: i64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The queue that another section names; it must be in the same file.
pub(super) fn known_queue<'a>(
    r: &Resolver<'_>,
    queue: &Found<String>,
    queues: &'a BTreeMap<QueueName, Arc<QueueSettings>>,
) -> Result<&'a Arc<QueueSettings>, ConfigError> {
    let known = QueueName::new(&queue.value).ok().and_then(|name| queues.get(&name));
    known.ok_or_else(|| {
        let names: Vec<&str> = queues.keys().map(QueueName::as_str).collect();
        let help = match nearest(&queue.value, names) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("add a section [queues.{}]", queue.value),
        };
        r.error(queue, format!("there is no queue {:?}", queue.value)).help(help)
    })
}
