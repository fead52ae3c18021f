//! The operator's hand: laid on the database that has the lane, or on all of them.
//!
//! What concerns a queue or a source is done in each database. That is not one transaction, but each of these hands does nothing
//! where things already are as asked; so one that failed in the middle is simply repeated. Its answer is *unknown* then, because a
//! part of it is done.
//!
//! A schedule is in the database of the key that it fires for. The limits of a source are divided: each database lets its share of
//! the requests go, so all together never pass the rate.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::LaneKey;
use quell_core::source::SourceRules;
use quell_core::store::{Control, ControlAction, Controlled};

use crate::ManyStore;
use crate::claim::share;

impl ManyStore {
    pub(crate) async fn control_where(&self, request: Control) -> StoreResult<Controlled> {
        let Control { actor, action } = request;
        let home = |lane: &LaneKey| Some(self.map.home(lane));
        let at = match &action {
            ControlAction::Flush(lane)
            | ControlAction::PauseLane(lane)
            | ControlAction::ResumeLane(lane)
            | ControlAction::EraseLane(lane)
            | ControlAction::Cancel { lane, .. }
            | ControlAction::EraseEvent { lane, .. }
            | ControlAction::EditEvent { lane, .. }
            | ControlAction::DeleteEvent { lane, .. } => home(lane),
            ControlAction::Purge(purge) => match (&purge.tenant, &purge.key) {
                (Some(tenant), Some(key)) => {
                    home(&LaneKey { tenant: tenant.clone(), queue: purge.queue.clone(), key: key.clone() })
                }
                _ => None,
            },
            ControlAction::Redrive(redrive) => {
                let run = redrive.run;
                let asked = Control { actor, action: action.clone() };
                return self.on_run(run, |n| self.members[n].control(asked.clone())).await;
            }
            ControlAction::PutSchedule(schedule) => {
                let lane = LaneKey {
                    tenant: schedule.tenant.clone(),
                    queue: schedule.queue.clone(),
                    key: schedule.key.clone(),
                };
                return self.put_schedule(actor, &action, self.map.home(&lane)).await;
            }
            ControlAction::PutSource { rules, .. } => {
                check_rate(rules, self.members.len())?;
                None
            }
            ControlAction::PauseQueue(_)
            | ControlAction::ResumeQueue(_)
            | ControlAction::RemoveSchedule { .. }
            | ControlAction::RemoveSource { .. }
            | ControlAction::EnableSource(_)
            | ControlAction::DisableSource(_)
            | ControlAction::ResetSource(_)
            | ControlAction::ReleaseSource(_) => None,
        };
        match at {
            Some(database) => self.members[database].control(Control { actor, action }).await,
            None => self.control_all(&actor, &action).await,
        }
    }

    /// In all databases. One that does not know the thing is no failure as long as another does.
    async fn control_all(&self, actor: &str, action: &ControlAction) -> StoreResult<Controlled> {
        let (mut all, mut known, mut unknown, mut failed) = (Controlled::default(), false, None, None);
        for (database, member) in self.members.iter().enumerate() {
            let action = self.share_of_source(action, database);
            match member.control(Control { actor: actor.to_owned(), action }).await {
                Ok(one) => {
                    known = true;
                    all.changed |= one.changed;
                    all.events += one.events;
                    all.run = all.run.or(one.run);
                    all.more |= one.more;
                }
                Err(error) if error.kind == ErrorKind::NotFound => unknown = Some(error),
                // One whose answer was lost may have done it.
                Err(error) if error.is_unknown() => failed = Some(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match (failed, unknown) {
            (Some(error), _) if all.changed || all.events > 0 => Err(half_done(&error)),
            (Some(error), _) => Err(error),
            (None, Some(error)) if !known => Err(error),
            _ => Ok(all),
        }
    }

    fn share_of_source(&self, action: &ControlAction, database: usize) -> ControlAction {
        let many = self.members.len();
        match action {
            ControlAction::PutSource { name, rules } => ControlAction::PutSource {
                name: name.clone(),
                rules: SourceRules {
                    per_minute: rules.per_minute.map(|rate| share(rate, many, database)),
                    burst: share(rules.burst, many, database).max(1),
                    ..*rules
                },
            },
            other => other.clone(),
        }
    }

    /// A schedule whose key has changed may be in another database: it goes there first, so that it never fires in two.
    async fn put_schedule(
        &self,
        actor: String,
        action: &ControlAction,
        home: usize,
    ) -> StoreResult<Controlled> {
        let mut removed = false;
        let told = |removed: bool, error: StoreError| if removed { half_done(&error) } else { error };
        if let ControlAction::PutSchedule(schedule) = action {
            let (tenant, name) = (schedule.tenant.clone(), schedule.name.as_str().to_owned());
            let remove = ControlAction::RemoveSchedule { tenant, name };
            for (_, member) in self.members.iter().enumerate().filter(|(n, _)| *n != home) {
                let request = Control { actor: actor.clone(), action: remove.clone() };
                match member.control(request).await {
                    Ok(one) => removed |= one.changed,
                    Err(error) if error.kind != ErrorKind::NotFound => return Err(told(removed, error)),
                    Err(_) => {}
                }
            }
        }
        let put = self.members[home].control(Control { actor, action: action.clone() }).await;
        put.map_err(|error| told(removed, error))
    }
}

/// One database has done it and another has not: *unavailable* would say that nothing is done.
fn half_done(error: &StoreError) -> StoreError {
    let kind = if error.is_temporary() { ErrorKind::Unknown } else { error.kind };
    let text = format!("{}; a part of it is done in other databases: repeat it", error.detail);
    StoreError::new(kind, text)
}

fn check_rate(rules: &SourceRules, many: usize) -> StoreResult<()> {
    match rules.per_minute {
        Some(rate) if (rate as usize) < many => Err(StoreError::new(
            ErrorKind::Invalid,
            format!(
                "a source that allows {rate} requests per minute cannot be divided among {many} databases: allow at least \
                 {many}, or keep its lanes in a store of one database"
            ),
        )),
        _ => Ok(()),
    }
}
