//! The rules of a queue, put together for everybody who needs them: senders, claimers, drivers and the checker.

use std::sync::Arc;
use std::time::Duration;

use quell_check::history;
use quell_core::event::{AppendPolicy, Overflow};
use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::retry::RetryPolicy;
use quell_core::step::{OnError, RunSettings};
use quell_core::store::RunPolicy;
use quell_core::window::{Window, WindowPolicy};

use super::{Item, Plan, Rule, Shape};
use crate::record;

/// One queue, ready for use.
#[derive(Debug, Clone)]
pub struct QueuePolicy {
    pub append: Arc<AppendPolicy>,
    pub run: Arc<RunPolicy>,
    pub settings: Arc<RunSettings>,
    pub check: history::Policy,
}

#[derive(Clone)]
struct Parts {
    append: AppendPolicy,
    run: RunPolicy,
    settings: RunSettings,
    notify: Option<bool>,
}

pub(super) fn of(plan: &Plan, newer: bool) -> Vec<QueuePolicy> {
    let mut all: Vec<Parts> = plan.shape.queues.iter().map(|_| plain()).collect();
    for item in &plan.items {
        let (queue, rule) = match item {
            Item::Rule { queue, rule } => (*queue, *rule),
            Item::Newer { queue, rule } if newer => (*queue, *rule),
            _ => continue,
        };
        if let Some(parts) = all.get_mut(queue) {
            parts.apply(rule, &plan.shape);
        }
    }
    // A queue of another tenant with the same name has the same settings.
    for place in 1..all.len() {
        let twin = (0..place).find(|&first| plan.shape.queues[first].name == plan.shape.queues[place].name);
        if let Some(first) = twin {
            all[place] = all[first].clone();
        }
    }
    // The last queue is where notices go.
    let notices = all.last().map(|p| p.append.clone()).unwrap_or_default();
    let last = plan.shape.queues.len() - 1;
    let mut policies = Vec::new();
    for (place, mut parts) in all.into_iter().enumerate() {
        if let Some(failed_only) = parts.notify.filter(|_| place != last) {
            let on = if failed_only {
                vec![RunState::Failed]
            } else {
                vec![RunState::Succeeded, RunState::Failed]
            };
            let queue = plan.shape.queues[last].name.clone();
            parts.run.notify = Some(Arc::new(Notify { queue, on, policy: notices.clone() }));
        }
        // The configuration refuses `same` with them.
        if parts.run.rules.during_run != DuringRun::Queue {
            parts.run.rules.retry_with = RetryWith::Newer;
        }
        let check = parts.check(plan, place);
        policies.push(QueuePolicy {
            append: Arc::new(parts.append),
            run: Arc::new(parts.run),
            settings: Arc::new(parts.settings),
            check,
        });
    }
    policies
}

fn plain() -> Parts {
    let retry = RetryPolicy {
        base: Duration::from_millis(50),
        factor: 2.0,
        cap: Duration::from_secs(1),
        attempts: 4,
        jitter: 0.0,
    };
    let lease = Duration::from_secs(1);
    Parts {
        append: AppendPolicy { window: Window::none(), ..AppendPolicy::default() },
        run: RunPolicy { lease, max_attempts: retry.attempts, ..RunPolicy::default() },
        settings: RunSettings {
            lease,
            retry,
            look_every: Duration::from_millis(300),
            ..RunSettings::default()
        },
        notify: None,
    }
}

impl Parts {
    fn apply(&mut self, rule: Rule, shape: &Shape) {
        let rules: &mut RunRules = &mut self.run.rules;
        match rule {
            Rule::Window(policy) => self.append.window.policy = policy,
            Rule::MaxEvents(max) => self.append.window.max_events = max,
            Rule::MaxBytes(max) => self.append.window.max_bytes = max,
            Rule::During(during) => {
                rules.during_run = during;
                self.settings.look_every = Duration::from_millis(60);
            }
            Rule::MaxInterrupts(max) => rules.max_interrupts = max,
            Rule::RetryNewer => rules.retry_with = RetryWith::Newer,
            Rule::Attempts(attempts) => {
                self.run.max_attempts = attempts;
                self.settings.retry.attempts = attempts;
            }
            Rule::OnFailed(on_failed) => rules.on_failed = on_failed,
            Rule::Lease(ms) => {
                self.run.lease = Duration::from_millis(ms);
                self.settings.lease = self.run.lease;
            }
            // Each database has its share of it, so less than one for each is refused (`docs/design/scale-out.md`).
            Rule::MaxRunning(max) => {
                let least = u32::try_from(shape.databases.len()).unwrap_or(u32::MAX);
                self.run.max_running = Some(max.max(least));
            }
            Rule::Notify { failed_only } => self.notify = Some(failed_only),
            Rule::LaneEvents(max) => self.append.lane_events = max,
            Rule::DropOldest => self.append.overflow = Overflow::DropOldest,
            Rule::ContentDedupe => self.append.content_dedupe = true,
            Rule::Backoff { base, cap, jitter } => {
                self.settings.retry.base = Duration::from_millis(base);
                self.settings.retry.cap = Duration::from_millis(cap);
                self.settings.retry.jitter = jitter;
            }
            Rule::TimeLimit(ms) => self.settings.time_limit = Some(Duration::from_millis(ms)),
            Rule::StopGrace(ms) => self.settings.stop_grace = Duration::from_millis(ms),
            Rule::OnErrorRetry => self.settings.on_error = OnError::Retry,
            Rule::Source(source) => self.append.source = Some(shape.sources[source].name.clone()),
        }
    }

    fn check(&self, plan: &Plan, place: usize) -> history::Policy {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let (rules, retry) = (&self.run.rules, &self.settings.retry);
        history::Policy {
            queue: record::queue_name(&plan.shape.queues[place]),
            window: match self.append.window.policy {
                WindowPolicy::None => history::Window::None,
                WindowPolicy::Fixed { wait } => history::Window::Fixed { wait_ms: ms(wait) },
                WindowPolicy::Quiet { quiet, max_wait } => {
                    history::Window::Quiet { quiet_ms: ms(quiet), max_wait_ms: ms(max_wait) }
                }
            },
            max_events: u64::from(self.append.window.max_events),
            max_bytes: self.append.window.max_bytes,
            during_run: match rules.during_run {
                DuringRun::Queue => history::DuringRun::Queue,
                DuringRun::Interrupt => history::DuringRun::Interrupt,
                DuringRun::Gate => history::DuringRun::Gate,
            },
            max_interrupts: rules.max_interrupts,
            retry_with: match rules.retry_with {
                RetryWith::Same => history::RetryWith::Same,
                RetryWith::Newer => history::RetryWith::Newer,
            },
            max_attempts: self.run.max_attempts,
            backoff_base_ms: ms(retry.base),
            backoff_factor: retry.factor,
            backoff_cap_ms: ms(retry.cap),
            jitter: retry.jitter,
            on_failed: match rules.on_failed {
                OnFailed::Continue => history::OnFailed::Continue,
                OnFailed::Block => history::OnFailed::Block,
                OnFailed::Bisect => history::OnFailed::Bisect,
            },
            lease_ms: ms(self.run.lease),
            content_dedupe: self.append.content_dedupe,
            sink: plan.shape.sink,
        }
    }
}
