//! What a queue says about its runs once they are going: newer events, failure, overflow, and who is told of the end.
//!
//! Plain words are checked here and become the types of the engine. What needs a second queue (`notify`) is checked when
//! all of them are known: the queue that is told must exist, and notices never make notices.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_core::event::{Overflow, QueueName};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::limits;
use quell_core::store::RunPolicy;

use super::error::{ConfigError, nearest};
use super::raw::{NotifyConfig, QueueConfig};
use super::resolver::{Found, Resolver};
use super::value::Written;
use super::{Origin, QueueSettings};

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
}

pub(super) fn notify(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<NotifyConfig>>,
) -> Result<Option<NotifyWish>, ConfigError> {
    let Some(written) = file else {
        r.note(setting, "nobody", &Origin::Default);
        return Ok(None);
    };
    let found = r.placed(written);
    let NotifyConfig { queue, on, url } = found.value.clone();
    if let Some(url) = url {
        let place = r.placed(url);
        let problem = "notify.url needs the HTTP server, which is not available in this version yet";
        let help = "write notify = { queue = \"…\" } and give that queue an exec handler";
        return Err(r.error(&place, problem).help(help));
    }
    let Some(queue) = queue.map(|written| r.placed(written)) else {
        let help = "write notify = { queue = \"…\", on = [\"failed\"] }";
        return Err(r.error(&found, "notify does not say which queue is told").help(help));
    };
    let name = QueueName::new(&queue.value).map_err(|e| r.error(&queue, e.to_string()))?;
    let on = match on.map(|written| r.placed(written)) {
        None => vec![RunState::Succeeded, RunState::Failed],
        Some(words) => ends(r, &words)?,
    };
    let shown: Vec<&str> = on.iter().map(|state| state.as_str()).collect();
    r.note(setting, format!("{{ queue = {:?}, on = {shown:?} }}", name.as_str()), &found.origin);
    let queue = Found { value: name, origin: queue.origin, span: queue.span };
    Ok(Some(NotifyWish { queue, on }))
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
    for (from, NotifyWish { queue, on }) in wishes {
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
