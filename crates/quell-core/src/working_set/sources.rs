//! Sources on a working set: who is governed by which, what a claim and a holder get, the operator's hand.
//!
//! In a part the rows of sources must have been taken in (and locked, lanes first, sources in the order of their numbers):
//!
//! | verb | declarations | sources | kept answers |
//! | --- | --- | --- | --- |
//! | append; events that enter from aside | of every name that a new event is governed by | those of these names: of the event's tenant and of none | |
//! | claim, hand out | | of every lane that may be handed out ([`Lane::source`](crate::lane::Lane::source)) | |
//! | extend, hold | | the run's, when it is a probe | |
//! | source | | the run's | the one of this key, and how many the source has |
//! | source, with a name | of this name | the one of the run's tenant, or the shared one | |
//! | settle | | the run's | |
//! | reclaim, sweep, redrive, erase and the other hands | | none: a right to probe ends by itself with its lease | |
//! | put and remove a source | of this name, and how many there are | all of this name | |
//! | enable, disable, release, reset | of this name | of this tenant and name | for reset: all of the source |

use std::collections::BTreeMap;

use super::WorkingSet;
use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::error::{StoreError, StoreResult};
use crate::event::{LaneKey, NewEvent, SourceName, Tenant};
use crate::lane::Lane;
use crate::limits;
use crate::source::{self, CacheRow, Readiness, Recall, Source, SourceId, SourceRules, SourceVerdict};
use crate::store::{
    Controlled, ExtendRequest, Extended, SourceAction, SourceAnswer, SourceRequest, SourceScope,
    no_such_source, too_many_sources, undeclared_source, ungoverned, unknown_source,
};

impl WorkingSet {
    /// Refuses an event that names a source which nobody declares.
    pub(super) fn check_source(&self, event: &NewEvent) -> StoreResult<()> {
        match event.governed_by() {
            Some(name) if !self.declarations.contains_key(name) => Err(unknown_source(&event.lane, name)),
            _ => Ok(()),
        }
    }

    /// The source that governs an event which enters its lane now. One that is not declared (any more) holds it: an event
    /// that was accepted is not lost, and not let go without its limits either.
    pub(super) fn resolve(&mut self, now: Timestamp, event: &NewEvent) -> Option<SourceId> {
        let name = event.governed_by()?;
        Some(self.source_of(now, &event.lane.tenant, name))
    }

    fn source_of(&mut self, now: Timestamp, tenant: &Tenant, name: &SourceName) -> SourceId {
        let declared = self.declarations.get(name).copied();
        let of_nobody = self.source_named(&Tenant::none(), name).and_then(|id| self.sources.get(&id));
        let tenant = Source::owner(tenant, declared, of_nobody.map(|source| source.rules));
        if let Some(known) = self.source_named(&tenant, name) {
            return known;
        }
        let id = SourceId(self.fresh());
        self.sources.insert(id, Source::first(id, tenant, name.clone(), declared, now));
        id
    }

    fn source_named(&self, tenant: &Tenant, name: &SourceName) -> Option<SourceId> {
        self.sources.values().find(|s| s.tenant == *tenant && s.name == *name).map(|s| s.id)
    }

    /// The source that a lane waits for.
    pub fn source_for(&self, lane: &Lane) -> Option<&Source> {
        self.sources.get(&lane.source()?)
    }

    /// Whether the source of a lane lets it go. A lane whose source has not been taken in is left alone.
    pub fn readiness(&self, now: Timestamp, lane: &Lane) -> Readiness {
        match lane.source() {
            None => Readiness::FREE,
            Some(id) => self
                .sources
                .get(&id)
                .map_or(Readiness::Held(source::Because::Removed), |source| source.readiness(now)),
        }
    }

    /// Keeps a lease, and with it the right to probe.
    pub fn extend(&mut self, now: Timestamp, request: &ExtendRequest) -> StoreResult<Extended> {
        let (run, token) = (request.run_id, request.token);
        let lost = || StoreError::lost_lease(run, token);
        let lane = &mut self.lane_of(run.lane).ok_or_else(lost)?.1.lane;
        let beat = lane.extend(now, run.number, token, request.lease).map_err(|_| lost())?;
        let probing = lane.current.as_ref().filter(|c| c.probe).and_then(|c| c.source);
        if let Some(source) = probing.and_then(|id| self.sources.get_mut(&id)) {
            source.probe_extended(run, token, beat.lease_until);
        }
        Ok(Extended::from(beat))
    }

    /// The attempt of a probe is over without a word about its source.
    pub(super) fn probe_lost(&mut self, source: Option<SourceId>, run: RunId, token: u64) {
        if let Some(source) = source.and_then(|id| self.sources.get_mut(&id)) {
            source.probe_lost(run, token);
        }
    }

    pub fn source(&mut self, now: Timestamp, request: SourceRequest) -> StoreResult<SourceAnswer> {
        let SourceRequest { run_id: run, token, source: name, action } = request;
        let lost = || StoreError::lost_lease(run, token);
        let (key, l) = self.lane_of(run.lane).ok_or_else(lost)?;
        let (tenant, now) = (key.tenant.clone(), now.max(l.lane.updated_at));
        let holder = l.lane.holder(run.number, token).ok_or_else(lost)?;
        let (id, lease_until) = (holder.source, holder.lease_until);
        if let Some(name) = name {
            let other = self.other_source(now, run, &tenant, &name)?;
            if Some(other) != id {
                return Ok(self.ask_other(now, other, (run, token, lease_until), &action));
            }
        }
        if action == SourceAction::Report(SourceVerdict::Fine)
            && let Some((_, l)) = self.lane_of(run.lane)
        {
            l.lane.probe_passed(run.number, token);
        }
        let source = id.and_then(|id| self.sources.get_mut(&id));
        let (action, source) = match (action, source) {
            (SourceAction::Take, None) => return Ok(SourceAnswer::Taken),
            (SourceAction::Report(_), None) => return Ok(SourceAnswer::Noted),
            (_, None) => return Err(ungoverned(run)),
            (action, Some(source)) => (action, source),
        };
        let place = |key: &str| (source.id, key.to_owned());
        match action {
            SourceAction::Take => Ok(match source.take_more(now, run, token) {
                Readiness::Wait(until, because) => SourceAnswer::Wait { until, because },
                Readiness::Go { .. } | Readiness::Held(_) => SourceAnswer::Taken,
            }),
            SourceAction::Report(verdict) => {
                source.report(now, run, token, verdict);
                Ok(SourceAnswer::Noted)
            }
            SourceAction::Recall { key, ttl } => {
                let known = self.cache.get(&place(&key));
                let (answer, row) = source::recall(now, source, known, &key, ttl, (run, token));
                if let Some(row) = row {
                    self.keep(row);
                }
                Ok(match answer {
                    Recall::Hit(value) => SourceAnswer::Hit(value),
                    Recall::Fetch(until) => SourceAnswer::Fetch { until },
                    Recall::Wait(until) => SourceAnswer::Fetching { until },
                })
            }
            SourceAction::Keep { key, value, ttl } => {
                if let Some(ttl) = source.ttl(ttl) {
                    let now = now.max(source.at);
                    let row = CacheRow::kept(source.id, key, value, now, ttl);
                    self.keep(row);
                }
                Ok(SourceAnswer::Noted)
            }
            SourceAction::Forget { key } => {
                let place = place(&key);
                if let Some(left) = self.cache.remove(&place).and_then(|row| row.forgotten(now, run, token)) {
                    self.cache.insert(place, left);
                }
                Ok(SourceAnswer::Noted)
            }
        }
    }

    /// The source of this name that a run of this tenant asks beside its own, made when nobody has named it before.
    fn other_source(
        &mut self,
        now: Timestamp,
        run: RunId,
        tenant: &Tenant,
        name: &SourceName,
    ) -> StoreResult<SourceId> {
        match self.declarations.contains_key(name) {
            true => Ok(self.source_of(now, tenant, name)),
            false => Err(undeclared_source(run, name)),
        }
    }

    /// What a holder asks of a source that does not govern its run.
    fn ask_other(
        &mut self,
        now: Timestamp,
        source: SourceId,
        (run, token, lease_until): (RunId, u64, Timestamp),
        action: &SourceAction,
    ) -> SourceAnswer {
        let source = self.sources.get_mut(&source).expect("it was found or made for this request");
        match action {
            SourceAction::Report(verdict) => {
                source.report(now, run, token, *verdict);
                SourceAnswer::Noted
            }
            _ => match source.take_beside(now, run, token, lease_until) {
                Readiness::Wait(until, because) => SourceAnswer::Wait { until, because },
                Readiness::Go { .. } | Readiness::Held(_) => SourceAnswer::Taken,
            },
        }
    }

    /// Keeps an answer, or that it is being fetched. A source that has as many as it may forgets the one that expires
    /// first.
    fn keep(&mut self, row: CacheRow) {
        let (source, place) = (row.source, (row.source, row.key.clone()));
        self.cache.insert(place.clone(), row);
        let of_source =
            || self.cache.range((source, String::new())..).take_while(move |((s, _), _)| *s == source);
        if of_source().count() > limits::CACHE_ROWS_MAX {
            let others = of_source().filter(|(at, _)| **at != place);
            let first = others.min_by_key(|(_, row)| row.expires_at).map(|(at, _)| at.clone());
            first.map(|at| self.cache.remove(&at));
        }
    }

    /// Forgets answers that are over, a bounded number.
    pub fn forget_answers(&mut self, now: Timestamp) -> bool {
        let over: Vec<_> =
            self.cache.iter().filter(|(_, row)| row.is_over(now)).map(|(at, _)| at.clone()).collect();
        for place in over.iter().take(limits::CACHE_SWEEP_STEP) {
            self.cache.remove(place);
        }
        over.len() > limits::CACHE_SWEEP_STEP
    }

    pub(super) fn put_source(
        &mut self,
        now: Timestamp,
        name: SourceName,
        rules: SourceRules,
    ) -> StoreResult<Controlled> {
        rules.check()?;
        let known = self.declarations.get(&name).copied();
        if known.is_none() && self.declarations.len() >= limits::SOURCES_DECLARED_MAX {
            return Err(too_many_sources());
        }
        self.declarations.insert(name.clone(), rules);
        // So that a listing shows it before the first event comes.
        self.source_of(now, &Tenant::none(), &name);
        let mut changed = known != Some(rules);
        for source in self.sources.values_mut().filter(|s| s.name == name) {
            changed |= source.put(now, rules);
        }
        Ok(Controlled::changed(changed))
    }

    pub(super) fn remove_source(&mut self, now: Timestamp, actor: &str, name: &SourceName) -> Controlled {
        let mut changed = self.declarations.remove(name).is_some();
        for source in self.sources.values_mut().filter(|s| s.name == *name) {
            changed |= source.remove(now, actor);
        }
        Controlled::changed(changed)
    }

    /// A hand laid on one source. A declared one that no event has named yet is made for it.
    pub(super) fn change_source(
        &mut self,
        now: Timestamp,
        scope: &SourceScope,
        change: impl FnOnce(&mut Source) -> StoreResult<bool>,
    ) -> StoreResult<Controlled> {
        let own = |rules: &SourceRules| !rules.shared || scope.tenant.is_none();
        let declared = self.declarations.get(&scope.name).is_some_and(own);
        let id = match self.source_named(&scope.tenant, &scope.name) {
            Some(id) => id,
            None if declared => self.source_of(now, &scope.tenant, &scope.name),
            None => return Err(no_such_source(scope)),
        };
        change(self.sources.get_mut(&id).expect("it was found or made above")).map(Controlled::changed)
    }

    pub(super) fn reset_source(
        &mut self,
        now: Timestamp,
        actor: &str,
        scope: &SourceScope,
    ) -> StoreResult<Controlled> {
        let mut reset = None;
        let done = self.change_source(now, scope, |source| {
            source.reset(now, actor);
            reset = Some(source.id);
            Ok(true)
        })?;
        self.cache.retain(|(source, _), _| Some(*source) != reset);
        Ok(done)
    }

    /// How many lanes wait for each source.
    pub(super) fn waiting_by_source(&self) -> BTreeMap<SourceId, u64> {
        let mut waiting = BTreeMap::new();
        for (_, l) in self.lanes.iter().filter(|(_, l)| l.lane.lease_at().is_none()) {
            if let Some(source) = l.lane.source() {
                *waiting.entry(source).or_default() += 1;
            }
        }
        waiting
    }

    /// What does not agree between the sources of events, runs and lanes, in words.
    pub(super) fn verify_sources(&self, problems: &mut Vec<String>) {
        for (key, l) in &self.lanes {
            let mut differ = |run: u64, said: Option<SourceId>| {
                problems.push(format!("{}: run {run} asks {said:?}, its events do not", shown(key)));
            };
            let unmarked = |lo: u64| l.events.range(lo..).map(|(_, k)| k).find(|k| k.mark.is_none());
            if let Some(open) = l.lane.open
                && unmarked(open.lo).is_some_and(|first| first.source != open.source)
            {
                differ(open.number, open.source);
            }
            for run in l.lane.fixed_runs() {
                if l.members(run).any(|kept| kept.source != run.source) {
                    differ(run.number, run.source);
                }
            }
            let unknown =
                l.events.values().filter_map(|k| k.source).find(|id| !self.sources.contains_key(id));
            if let Some(id) = unknown {
                problems.push(format!("{}: an event names source {id}, which is not there", shown(key)));
            }
        }
    }
}

fn shown(key: &LaneKey) -> String {
    format!("lane {key}")
}
