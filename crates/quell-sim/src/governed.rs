//! Sources as handlers and operators meet them: what is asked and said of them, and under which name.

use std::time::Duration;

use quell_check::history::{self, Action, Name};
use quell_core::event::{SourceName, Tenant};
use quell_core::inspect::{Inspect, Inspected, SourceFilter, SourceRow};
use quell_core::source::{FaultKind, SourceFault, SourceReport, SourceRules, SourceVerdict, Standing};
use quell_core::store::{ControlAction, SourceAction, SourceAnswer, SourceScope};

use crate::call::ready;
use crate::chance::Chance;
use crate::plan::{Habit, Hand};
use crate::seen::Sight;
use crate::world::World;

/// What a handler asks of its source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Ask {
    Take,
    Report { fault: bool, silence: Option<u64> },
    Recall(u8),
    Keep(u8),
    Forget(u8),
}

impl Ask {
    pub(crate) fn action(self, value: u64) -> SourceAction {
        let key = |n: u8| format!("key{n}");
        match self {
            Ask::Take => SourceAction::Take,
            Ask::Report { fault: true, silence } => {
                SourceAction::Report(SourceVerdict::Fault(self::fault(silence)))
            }
            Ask::Report { fault: false, .. } => SourceAction::Report(SourceVerdict::Fine),
            Ask::Recall(n) => SourceAction::Recall { key: key(n), ttl: None },
            Ask::Keep(n) => SourceAction::Keep { key: key(n), value: serde_json::json!(value), ttl: None },
            Ask::Forget(n) => SourceAction::Forget { key: key(n) },
        }
    }

    /// Whether this ends what the other began.
    pub(crate) fn ends(self, other: Ask) -> bool {
        matches!((self, other), (Ask::Keep(a) | Ask::Forget(a), Ask::Recall(b)) if a == b)
    }
}

fn fault(silence: Option<u64>) -> SourceFault {
    let fault = SourceFault::new(FaultKind::ServerError);
    silence.map_or(fault, |ms| fault.retry_after(Duration::from_millis(ms)))
}

/// What a handler does with its source, drawn when it begins.
pub(crate) struct Dealings {
    pub(crate) asks: Vec<Ask>,
    pub(crate) report: SourceReport,
    /// The work could not be done.
    pub(crate) fails: bool,
}

impl World {
    pub(crate) fn draw_dealings(&mut self, c: &mut Chance) -> Dealings {
        let mut has = |world: &mut World, habit: Habit| {
            let yes = c.percent(world.habit(habit));
            if yes {
                world.seen.saw_habit(habit);
            }
            yes
        };
        let faulty = has(self, Habit::SourceFault);
        let silent = faulty && has(self, Habit::SourceSilence);
        let unused = !faulty && has(self, Habit::SourceUnused);
        let reports = !unused && has(self, Habit::SourceReports);
        let takes = has(self, Habit::SourceTake);
        let recalls = has(self, Habit::SourceCache);
        let silence = silent.then(|| *c.pick(&[30, 300, 1_000, 5_000]));
        let mut asks = Vec::new();
        if recalls {
            let key = u8::try_from(c.below(2)).unwrap_or(0);
            asks.extend([Ask::Recall(key), if c.percent(75) { Ask::Keep(key) } else { Ask::Forget(key) }]);
        }
        let more = if takes { c.between(1, 3) } else { 0 };
        for _ in 0..more {
            if reports {
                asks.push(Ask::Report { fault: false, silence: None });
            }
            asks.push(Ask::Take);
        }
        if reports {
            asks.push(Ask::Report { fault: faulty, silence });
        }
        let report = match () {
            () if reports => SourceReport::Reported,
            () if faulty => SourceReport::Fault(fault(silence)),
            () if unused => SourceReport::Unused,
            () => SourceReport::Fine,
        };
        Dealings { asks, report, fails: faulty && c.percent(80) }
    }

    pub(crate) fn saw_answer(&mut self, answer: &SourceAnswer) {
        match answer {
            SourceAnswer::Hit(_) => self.seen.saw(Sight::AnswerHit),
            SourceAnswer::Fetching { .. } => self.seen.saw(Sight::AnswerAwaited),
            SourceAnswer::Wait { .. } => self.seen.saw(Sight::TokenAwaited),
            _ => {}
        }
    }

    /// What an operator does to a source, with what it is called in a history.
    pub(crate) fn choose_source(&self, hand: Hand) -> Option<(Sight, ControlAction, Action)> {
        let shape = |source: usize| &self.plan.shape.sources[source];
        let scope = |source: usize, queue: usize| {
            let name = shape(source).name.clone();
            let tenant = match shape(source).rules.shared {
                true => Tenant::none(),
                false => self.plan.shape.queues[queue].tenant.clone(),
            };
            (SourceScope { tenant: tenant.clone(), name: name.clone() }, scoped(&tenant, &name))
        };
        Some(match hand {
            Hand::DisableSource { source, queue } => {
                let (scope, source) = scope(source, queue);
                let told = Action::DisableSource { source };
                (Sight::HandDisableSource, ControlAction::DisableSource(scope), told)
            }
            Hand::EnableSource { source, queue } => {
                let (scope, source) = scope(source, queue);
                let told = Action::EnableSource { source };
                (Sight::HandEnableSource, ControlAction::EnableSource(scope), told)
            }
            Hand::ResetSource { source, queue } => {
                let (scope, source) = scope(source, queue);
                let told = Action::ResetSource { source };
                (Sight::HandResetSource, ControlAction::ResetSource(scope), told)
            }
            Hand::ReleaseSource { source, queue } => {
                let (scope, source) = scope(source, queue);
                let told = Action::ReleaseSource { source };
                (Sight::HandReleaseSource, ControlAction::ReleaseSource(scope), told)
            }
            Hand::RemoveSource { source } => {
                let name = shape(source).name.clone();
                let told = Action::RemoveSource { name: name.as_str().into() };
                (Sight::HandRemoveSource, ControlAction::RemoveSource { name }, told)
            }
            Hand::PutSource { source, rules } => {
                let (action, told) = self.declare(source, rules);
                (Sight::HandPutSource, action, told)
            }
            _ => return None,
        })
    }

    /// Declares a source as the plan does, or with other rules.
    pub(crate) fn declare(&self, source: usize, rules: Option<SourceRules>) -> (ControlAction, Action) {
        let shape = &self.plan.shape.sources[source];
        let (name, rules) = (shape.name.clone(), rules.unwrap_or(shape.rules));
        let told = Action::PutSource {
            name: name.as_str().into(),
            rules: history::SourceRules {
                per_minute: rules.per_minute.map(u64::from),
                burst: u64::from(rules.burst),
                failures: rules.failures,
                cooldown_ms: millis(rules.cooldown),
            },
        };
        (ControlAction::PutSource { name, rules }, told)
    }

    pub(crate) fn source_rows(&self) -> Vec<SourceRow> {
        if self.plan.shape.sources.is_empty() {
            return Vec::new();
        }
        let filter = SourceFilter { limit: 100, ..SourceFilter::default() };
        match ready(self.store.inspect(Inspect::Sources(filter))) {
            Ok(Inspected::Sources(page)) => page.items,
            other => panic!("{other:?}"),
        }
    }

    /// Lets every source go on that somebody holds; false when there is none.
    pub(crate) fn enable_sources(&mut self) -> bool {
        let mut held = self.source_rows();
        held.retain(|row| row.standing != Standing::Enabled);
        if self.open_calls > 0 {
            return !held.is_empty();
        }
        for row in &held {
            if row.waiting > 0 && row.standing != Standing::Released {
                self.seen.saw(Sight::HeldUntilEnabled);
            }
            let (action, told) = if row.standing == Standing::Disabled {
                let source = scoped(&row.tenant, &row.name);
                let scope = SourceScope { tenant: row.tenant.clone(), name: row.name.clone() };
                (ControlAction::EnableSource(scope), Action::EnableSource { source })
            } else {
                let place = self.plan.shape.sources.iter().position(|s| s.name == row.name);
                self.declare(place.unwrap_or(0), None)
            };
            self.put_right(action, told);
        }
        !held.is_empty()
    }
}

/// A source's name, with its tenant before it.
pub(crate) fn scoped(tenant: &Tenant, name: &SourceName) -> Name {
    if tenant.is_none() { name.as_str().into() } else { format!("{tenant}:{name}").into() }
}

/// The name of what one of several databases has of a source: of its limit a share, and a breaker and kept answers of its own, of
/// which the others know nothing (`docs/design/scale-out.md`). To the checker these are different sources.
pub(crate) fn part_of(source: &Name, database: usize) -> Name {
    match source.rsplit_once(':') {
        Some((tenant, name)) => format!("{tenant}:{database}/{name}").into(),
        None => format!("{database}/{source}").into(),
    }
}

/// What an operator's hand on a source is in one of so many databases; nothing when it concerns no source.
pub(crate) fn hand_in(action: &Action, database: usize, many: usize) -> Option<Action> {
    let part = |name: &Name| part_of(name, database);
    let share = |whole: u64| {
        let (database, many) = (database as u64, many as u64);
        whole / many + u64::from(database < whole % many)
    };
    Some(match action {
        Action::PutSource { name, rules } => Action::PutSource {
            name: part(name),
            rules: history::SourceRules {
                per_minute: rules.per_minute.map(share),
                burst: share(rules.burst).max(1),
                ..*rules
            },
        },
        Action::RemoveSource { name } => Action::RemoveSource { name: part(name) },
        Action::EnableSource { source } => Action::EnableSource { source: part(source) },
        Action::DisableSource { source } => Action::DisableSource { source: part(source) },
        Action::ResetSource { source } => Action::ResetSource { source: part(source) },
        Action::ReleaseSource { source } => Action::ReleaseSource { source: part(source) },
        _ => return None,
    })
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

fn told_fault(fault: SourceFault) -> history::SourceReport {
    history::SourceReport::Fault { retry_after_ms: fault.retry_after.map(millis) }
}

pub(crate) fn told_report(report: SourceReport) -> history::SourceReport {
    match report {
        SourceReport::Fine => history::SourceReport::Fine,
        SourceReport::Fault(fault) => told_fault(fault),
        SourceReport::Unused => history::SourceReport::Unused,
        SourceReport::Reported => history::SourceReport::Reported,
        SourceReport::Starved => history::SourceReport::Starved,
    }
}

pub(crate) fn told_ask(action: &SourceAction) -> history::SourceAsk {
    use history::SourceAsk;
    match action {
        SourceAction::Take => SourceAsk::Take,
        SourceAction::Report(SourceVerdict::Fine) => SourceAsk::Report(history::SourceReport::Fine),
        SourceAction::Report(SourceVerdict::Fault(fault)) => SourceAsk::Report(told_fault(*fault)),
        SourceAction::Recall { key, .. } => SourceAsk::Recall { key: key.as_str().into() },
        SourceAction::Keep { key, .. } => SourceAsk::Keep { key: key.as_str().into() },
        SourceAction::Forget { key } => SourceAsk::Forget { key: key.as_str().into() },
    }
}

pub(crate) fn told_answer(answer: &SourceAnswer) -> history::SourceAnswer {
    match answer {
        SourceAnswer::Taken => history::SourceAnswer::Taken,
        SourceAnswer::Wait { until, .. } => history::SourceAnswer::Wait { until: until.as_millis() },
        SourceAnswer::Noted => history::SourceAnswer::Noted,
        SourceAnswer::Hit(_) => history::SourceAnswer::Hit,
        SourceAnswer::Fetch { until } => {
            history::SourceAnswer::Fetch { until: until.map(|until| until.as_millis()) }
        }
        SourceAnswer::Fetching { until } => history::SourceAnswer::Fetching { until: until.as_millis() },
    }
}
