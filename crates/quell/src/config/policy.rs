//! What a queue says about its runs once they are going: newer events, failure, overflow, and who is told of the end.
//!
//! Plain words are checked here and become the types of the engine. What needs a second queue (`notify`) is checked when
//! all of them are known: the queue that is told must exist, and notices never make notices. A URL that is told makes a queue
//! of its own (`notify_queues`), so that a notice is as durable as any event.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_core::event::{Overflow, QueueName};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::RunPolicy;

use super::error::{ConfigError, nearest};
use super::handler::{refuse_fields, span_of};
use super::queue::{QueueSources, resolve_queue};
use super::raw::{HandlerParts, NotifyConfig, QueueConfig};
use super::resolver::{Found, Resolver};
use super::value::{WordOr, Written};
use super::{Origin, PushSettings, QueueSettings};

/// What happens to a run that newer events meet, and after it has failed.
pub(super) fn run_rules(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    file: &mut QueueConfig,
) -> Result<RunRules, ConfigError> {
    let words = [("queue", DuringRun::Queue), ("interrupt", DuringRun::Interrupt), ("gate", DuringRun::Gate)];
    let during_run = word(r, &path("during_run"), file.during_run.take(), &words)?;
    let (usual, most) = (limits::INTERRUPTS_DEFAULT.into(), limits::INTERRUPTS_MAX.into());
    let written = file.max_interrupts.take();
    let max_interrupts = r.integer(&path("max_interrupts"), None, &[], written, usual, 1..=most)?;
    let retry_with = retry_with(r, &path("retry.with"), during_run, file.retry.with.take())?;
    let words = [("continue", OnFailed::Continue), ("block", OnFailed::Block), ("bisect", OnFailed::Bisect)];
    let on_failed = word(r, &path("on_failed"), file.on_failed.take(), &words)?;
    let max_interrupts = u32::try_from(max_interrupts).unwrap_or(limits::INTERRUPTS_DEFAULT);
    Ok(RunRules { during_run, max_interrupts, retry_with, on_failed })
}

/// A run that gives way to newer events takes them in; a retry that did not would undo that.
fn retry_with(
    r: &mut Resolver<'_>,
    setting: &str,
    during_run: DuringRun,
    file: Option<Written<String>>,
) -> Result<RetryWith, ConfigError> {
    let gives_way = during_run != DuringRun::Queue;
    let words = if gives_way {
        [("newer", RetryWith::Newer), ("same", RetryWith::Same)]
    } else {
        [("same", RetryWith::Same), ("newer", RetryWith::Newer)]
    };
    let place = file.clone();
    let with = word(r, setting, file, &words)?;
    if let (true, RetryWith::Same, Some(written)) = (gives_way, with, place) {
        let found = r.placed(written);
        let problem = "with = \"same\" cannot be combined with during_run = \"interrupt\" or \"gate\", where newer \
                       events join the batch";
        return Err(r.error(&found, problem).help("write with = \"newer\", or leave it out"));
    }
    Ok(with)
}

pub(super) fn overflow(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<String>>,
) -> Result<Overflow, ConfigError> {
    word(r, setting, file, &[("reject", Overflow::Reject), ("drop_oldest", Overflow::DropOldest)])
}

/// Who is told, before it is known whether that queue exists.
pub(super) struct NotifyWish {
    queue: Found<QueueName>,
    on: Vec<RunState>,
    /// The queue is made for this service.
    service: Option<HandlerParts>,
}

impl NotifyWish {
    /// The queue that a URL makes: a notice goes out as soon as it is there.
    pub(super) fn own_queue(&self) -> Option<(Found<QueueName>, QueueConfig)> {
        let (service, span) = (self.service.clone()?, &self.queue.span);
        let file = QueueConfig {
            window: Some(Written { value: WordOr::Word("none".to_owned()), span: span.clone() }),
            handler: Some(Written { value: WordOr::Table(service), span: span.clone() }),
            ..QueueConfig::default()
        };
        Some((self.queue.clone(), file))
    }
}

pub(super) fn notify(
    r: &mut Resolver<'_>,
    setting: &str,
    of: &QueueName,
    file: Option<Written<NotifyConfig>>,
) -> Result<Option<NotifyWish>, ConfigError> {
    let Some(written) = file else {
        r.note(setting, "nobody", &Origin::Default);
        return Ok(None);
    };
    let found = r.placed(written);
    let NotifyConfig { queue, url, on, timeout, secret_file, secret_env } = found.value.clone();
    let (told, queue, service) = match (queue.map(|w| r.placed(w)), url.map(|w| r.placed(w))) {
        (Some(_), Some(url)) => {
            let help = "remove one of them; a queue may have an http handler of its own";
            return Err(r.error(&url, "notify tells a queue or a URL, not both").help(help));
        }
        (None, None) => {
            let help = "write notify = { queue = \"…\" } or { url = \"https://…\" }, and on = [\"failed\"] if that is all";
            return Err(r.error(&found, "notify does not say who is told").help(help));
        }
        (Some(queue), None) => {
            let services = [
                ("timeout", span_of(&timeout)),
                ("secret_file", span_of(&secret_file)),
                ("secret_env", span_of(&secret_env)),
            ];
            refuse_fields(
                r,
                &services,
                "belongs to notify.url; the queue that is told has a handler of its own",
            )?;
            let name = QueueName::new(&queue.value).map_err(|e| r.error(&queue, e.to_string()))?;
            let told = format!("queue = {:?}", name.as_str());
            (told, Found { value: name, origin: queue.origin, span: queue.span }, None)
        }
        (None, Some(url)) => {
            let name = own_name(r, &url, of)?;
            let told = format!("url = {:?}", PushSettings::new(&url.value).target());
            let http = Some(Written { value: url.value, span: url.span.clone() });
            let service = HandlerParts { http, timeout, secret_file, secret_env, ..HandlerParts::default() };
            (told, Found { value: name, origin: url.origin, span: url.span }, Some(service))
        }
    };
    let on = match on.map(|written| r.placed(written)) {
        None => vec![RunState::Succeeded, RunState::Failed],
        Some(words) => ends(r, &words)?,
    };
    let shown: Vec<&str> = on.iter().map(|state| state.as_str()).collect();
    r.note(setting, format!("{{ {told}, on = {shown:?} }}"), &found.origin);
    Ok(Some(NotifyWish { queue, on, service }))
}

/// The name of the queue that a URL makes.
fn own_name(r: &Resolver<'_>, url: &Found<String>, of: &QueueName) -> Result<QueueName, ConfigError> {
    let name = format!("notify.{of}");
    QueueName::new(&name).map_err(|_| {
        let problem = format!(
            "the notices would wait in the queue {name:?}, and a name has at most {} characters",
            limits::QUEUE_NAME_BYTES_MAX
        );
        r.error(url, problem).help("give this queue a shorter name, or write notify = { queue = \"…\" }")
    })
}

/// Makes the queues that URLs want.
pub(super) fn notify_queues(
    r: &mut Resolver<'_>,
    sources: &QueueSources,
    queues: &mut BTreeMap<QueueName, Arc<QueueSettings>>,
    wishes: &[(QueueName, NotifyWish)],
) -> Result<(), ConfigError> {
    for (name, file) in wishes.iter().filter_map(|(_, wish)| wish.own_queue()) {
        if queues.contains_key(&name.value) {
            let problem =
                format!("the notices would wait in the queue {:?}, which this file has already", name.value);
            let help =
                format!("rename that queue, or write notify = {{ queue = {:?} }}", name.value.as_str());
            return Err(r.error(&name, problem).help(help));
        }
        let (settings, _) = resolve_queue(r, sources, name.value.as_str(), name.value.clone(), file)?;
        queues.insert(name.value, Arc::new(settings));
    }
    Ok(())
}

fn ends(r: &Resolver<'_>, words: &Found<Vec<String>>) -> Result<Vec<RunState>, ConfigError> {
    let finals = [RunState::Succeeded, RunState::Failed, RunState::Cancelled];
    let help = "write on = [\"succeeded\", \"failed\", \"cancelled\"] or some of them";
    let mut on = Vec::new();
    for word in &words.value {
        let Some(state) = finals.into_iter().find(|state| state.as_str() == word) else {
            return Err(r.error(words, format!("{word:?} is not an end of a run")).help(help));
        };
        if !on.contains(&state) {
            on.push(state);
        }
    }
    if on.is_empty() {
        return Err(r.error(words, "notify.on is empty, so nobody would be told of anything").help(help));
    }
    Ok(on)
}

/// Joins the wishes with the queues they name.
pub(super) fn attach_notify(
    r: &Resolver<'_>,
    queues: &mut BTreeMap<QueueName, Arc<QueueSettings>>,
    wishes: Vec<(QueueName, NotifyWish)>,
) -> Result<(), ConfigError> {
    let told: Vec<(QueueName, QueueName)> =
        wishes.iter().map(|(from, wish)| (wish.queue.value.clone(), from.clone())).collect();
    for (from, NotifyWish { queue, on, .. }) in wishes {
        let Some(target) = queues.get(&queue.value) else {
            let known: Vec<&str> = queues.keys().map(QueueName::as_str).collect();
            let help = match nearest(queue.value.as_str(), known) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("add a section [queues.{}]", queue.value),
            };
            return Err(r.error(&queue, format!("there is no queue {:?} to notify", queue.value)).help(help));
        };
        if queue.value == from {
            let help = "name another queue, whose handler tells whoever wants to know";
            return Err(r.error(&queue, "a queue cannot notify itself").help(help));
        }
        if let Some((_, other)) = told.iter().find(|(target, _)| *target == from) {
            let problem = format!(
                "queue {from:?} receives the notices of {other:?}, and notices are never told of themselves"
            );
            return Err(r.error(&queue, problem).help("remove this notify, or send the notices elsewhere"));
        }
        let policy = (*target.append).clone();
        let notify = Some(Arc::new(Notify { queue: queue.value.clone(), on, policy }));
        let settings = queues.get_mut(&from).expect("a wish comes from a queue of this file");
        let settings = Arc::make_mut(settings);
        settings.run = Arc::new(RunPolicy { notify, ..(*settings.run).clone() });
    }
    Ok(())
}

/// One of a few words; the first one is the default.
pub(super) fn word<T: Copy>(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<String>>,
    words: &[(&'static str, T)],
) -> Result<T, ConfigError> {
    let found = match file {
        Some(written) => r.placed(written),
        None => Found { value: words[0].0.to_owned(), origin: Origin::Default, span: 0..0 },
    };
    let known = || words.iter().map(|(word, _)| *word);
    let Some((word, value)) = words.iter().find(|(word, _)| *word == found.value) else {
        let name = setting.rsplit('.').next().unwrap_or(setting);
        let help = match nearest(&found.value, known()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("write one of {:?}", known().collect::<Vec<_>>()),
        };
        return Err(r.error(&found, format!("{name} = {:?} is not known", found.value)).help(help));
    };
    r.note(setting, *word, &found.origin);
    Ok(*value)
}
