//! Reads: of the database that has the lane, or of all of them, put together.
//!
//! A listing of all databases is merged in its order (`inspect/pages.rs`). Totals add up. Where a database does not answer, a
//! listing and the totals are refused, because they would be wrong; only the health is told all the same, with a warning.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Key, LaneKey, QueueName, Tenant};
use quell_core::inspect::{
    Concern, Health, Inspect, Inspected, QueueLeases, QueueStats, SourceRow, Verified,
};
use quell_core::source::{Breaker, Standing};
use quell_core::store::Store;
use quell_core::totals::Totals;

use crate::ManyStore;

mod pages;

impl ManyStore {
    pub(crate) async fn inspect_all(&self, request: Inspect) -> StoreResult<Inspected> {
        match request {
            Inspect::Lane(lane) => self.members[self.map.home(&lane)].inspect(Inspect::Lane(lane)).await,
            Inspect::Event(lane, id) => {
                self.members[self.map.home(&lane)].inspect(Inspect::Event(lane, id)).await
            }
            Inspect::Run(run) => {
                let found = self.on_run(run, |n| {
                    let asked = self.members[n].inspect(Inspect::Run(run));
                    async move {
                        match asked.await? {
                            Inspected::Run(None) => Err(StoreError::not_found(run)),
                            found => Ok(found),
                        }
                    }
                });
                match found.await {
                    Err(error) if error.kind == ErrorKind::NotFound => Ok(Inspected::Run(None)),
                    answer => answer,
                }
            }
            Inspect::Lanes(filter) => self.lanes(filter).await.map(Inspected::Lanes),
            Inspect::Runs(filter) => match self.home_of(filter.tenant.as_ref(), filter.key.as_ref()) {
                Some(home) => self.members[home].inspect(Inspect::Runs(filter)).await,
                None => self.runs(filter).await.map(Inspected::Runs),
            },
            Inspect::Audit(filter) => match self.home_of(filter.tenant.as_ref(), filter.key.as_ref()) {
                Some(home) => self.members[home].inspect(Inspect::Audit(filter)).await,
                None => self.audit(filter).await.map(Inspected::Audit),
            },
            Inspect::Sources(filter) => self.sources(filter).await.map(Inspected::Sources),
            Inspect::Schedules => self.schedules().await,
            Inspect::Stats => self.stats().await,
            Inspect::Leases => self.leases().await,
            Inspect::Verify => self.verify().await,
            Inspect::Health => self.health().await,
        }
    }

    /// The database that has everything of this key, when it is known whose key it is.
    fn home_of(&self, tenant: Option<&Tenant>, key: Option<&Key>) -> Option<usize> {
        let queue = QueueName::of_sources();
        Some(self.map.home(&LaneKey { tenant: tenant?.clone(), queue, key: key?.clone() }))
    }

    /// The answers of all databases to the same question, in their order.
    async fn each(&self, request: &Inspect) -> StoreResult<Vec<Inspected>> {
        let asked: Vec<_> = self.members.iter().map(|member| member.inspect(request.clone())).collect();
        join_all(asked).await.into_iter().collect()
    }

    async fn schedules(&self) -> StoreResult<Inspected> {
        let mut all = Vec::new();
        for answer in self.each(&Inspect::Schedules).await? {
            if let Inspected::Schedules(rows) = answer {
                all.extend(rows);
            }
        }
        all.sort_by(|a, b| {
            (&a.schedule.tenant, &a.schedule.name).cmp(&(&b.schedule.tenant, &b.schedule.name))
        });
        Ok(Inspected::Schedules(all))
    }

    async fn stats(&self) -> StoreResult<Inspected> {
        let mut all: BTreeMap<(Tenant, QueueName), QueueStats> = BTreeMap::new();
        for answer in self.each(&Inspect::Stats).await? {
            let Inspected::Stats(rows) = answer else { continue };
            for row in rows {
                let name = (row.tenant.clone(), row.queue.clone());
                match all.get_mut(&name) {
                    None => drop(all.insert(name, row)),
                    Some(known) => add_stats(known, row),
                }
            }
        }
        Ok(Inspected::Stats(all.into_values().collect()))
    }

    async fn leases(&self) -> StoreResult<Inspected> {
        let mut all: BTreeMap<(Tenant, QueueName), QueueLeases> = BTreeMap::new();
        for answer in self.each(&Inspect::Leases).await? {
            let Inspected::Leases(rows) = answer else { continue };
            for row in rows {
                let name = (row.tenant.clone(), row.queue.clone());
                match all.get_mut(&name) {
                    None => drop(all.insert(name, row)),
                    Some(known) => {
                        known.oldest_ms = known.oldest_ms.max(row.oldest_ms);
                        known.silent += row.silent;
                    }
                }
            }
        }
        Ok(Inspected::Leases(all.into_values().collect()))
    }

    async fn verify(&self) -> StoreResult<Inspected> {
        let mut all = Verified { queues: 0, events: 0, problems: Vec::new() };
        for (answer, member) in self.each(&Inspect::Verify).await?.into_iter().zip(&self.members) {
            let Inspected::Verify(one) = answer else { continue };
            all.events += one.events;
            let place = member.description().place;
            all.problems.extend(one.problems.into_iter().map(|problem| format!("{place}: {problem}")));
        }
        if let Inspected::Stats(queues) = self.stats().await? {
            all.queues = queues.len() as u64;
        }
        Ok(Inspected::Verify(all))
    }

    async fn health(&self) -> StoreResult<Inspected> {
        let asked: Vec<_> = self.members.iter().map(|member| member.inspect(Inspect::Health)).collect();
        let answers = join_all(asked).await;
        let mut health: Option<Health> = None;
        let (mut facts, mut warnings, mut failed) = (Vec::new(), Vec::new(), None);
        facts.push(("databases".to_owned(), self.members.len().to_string()));
        facts.push(("map".to_owned(), format!("version {} of store {}", self.map.version, self.map.store)));
        for (nth, answer) in answers.into_iter().enumerate() {
            let place = self.members[nth].description().place;
            match answer {
                Ok(Inspected::Health(one)) => {
                    facts.push((format!("database {}", nth + 1), place.clone()));
                    facts.extend(
                        one.facts
                            .iter()
                            .map(|(name, fact)| (format!("database {}: {name}", nth + 1), fact.clone())),
                    );
                    let told = one.warnings.iter();
                    warnings
                        .extend(told.map(|w| Concern::new(format!("{place}: {}", w.text), w.fix.clone())));
                    health.get_or_insert(one);
                }
                Ok(_) => {}
                Err(error) => {
                    let text = format!(
                        "{place} does not answer ({error}): its lanes wait, those of the others go on"
                    );
                    warnings.push(Concern::new(text, "bring the database back; nothing else has to be done"));
                    failed = Some(error);
                }
            }
        }
        match (health, failed) {
            (Some(first), _) => {
                Ok(Inspected::Health(Health { description: self.description(), facts, warnings, ..first }))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(StoreError::unavailable("no database answers")),
        }
    }
}

fn add_stats(known: &mut QueueStats, row: QueueStats) {
    let Totals { accepted, succeeded, dead, discarded, delayed, buffered, in_flight } = row.totals;
    let totals = &mut known.totals;
    totals.accepted += accepted;
    totals.succeeded += succeeded;
    totals.dead += dead;
    totals.discarded += discarded;
    totals.delayed += delayed;
    totals.buffered += buffered;
    totals.in_flight += in_flight;
    known.running += row.running;
    known.paused_by = known.paused_by.take().or(row.paused_by);
    known.oldest_due_ms = known.oldest_due_ms.max(row.oldest_due_ms);
}

/// One source as all databases together see it.
fn add_source(known: &mut SourceRow, row: SourceRow) {
    known.enabled &= row.enabled;
    if known.standing == Standing::Enabled {
        known.standing = row.standing;
    }
    known.changed_by = known.changed_by.take().or(row.changed_by);
    if known.breaker == Breaker::Closed {
        known.breaker = row.breaker;
    }
    known.failure_streak = known.failure_streak.max(row.failure_streak);
    known.last_success_at = known.last_success_at.max(row.last_success_at);
    known.last_failure_at = known.last_failure_at.max(row.last_failure_at);
    known.paused_until = known.paused_until.max(row.paused_until);
    known.not_before = known.not_before.max(row.not_before);
    known.probe = known.probe.or(row.probe);
    known.tokens = known.tokens.zip(row.tokens).map(|(a, b)| a + b);
    known.waiting += row.waiting;
    known.cached += row.cached;
    known.rules.per_minute = known.rules.per_minute.zip(row.rules.per_minute).map(|(a, b)| a + b);
    known.rules.burst += row.rules.burst;
}
