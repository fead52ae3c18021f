//! Events by the calendar: the schedules of the store, and how those of the configuration get there.
//!
//! The store fires a schedule once, whatever the number of workers (`quell-core/src/schedule.rs`). A worker with a
//! configuration file puts the file's schedules into the store when it starts; an unchanged one keeps its place in time,
//! so a restart neither repeats nor skips a fire.
//!
//! The store keeps a configured schedule under its name behind [`CONFIGURED`], a part of the names that is closed to
//! everybody else. That is how a schedule that is gone from the file is told from one that a program or an operator has
//! put: a starting worker removes what stands under that prefix and is not in its file, and touches nothing else. A
//! process without a file leaves all schedules as they are. Processes that share a store are expected to share their
//! file; if two files differ, the one whose worker started last is in force.

use quell_core::error::StoreResult;
use quell_core::event::{Invalid, QueueName, Tenant};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::schedule::{Schedule, ScheduleRow, schedule_name};
use quell_core::store::ControlAction;

use crate::config::ScheduleSettings;
use crate::engine::{Engine, EngineError, mixed_up};

/// What the store's names of configured schedules begin with.
pub const CONFIGURED: &str = "config.";
/// Who changes configured schedules, in the audit.
const ACTOR: &str = "configuration";

/// What a worker's start did to the schedules of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AppliedSchedules {
    /// New or changed.
    pub put: usize,
    /// Those that were there and stay as they are, with their place in time.
    pub unchanged: usize,
    /// Gone from the file.
    pub removed: usize,
}

impl Engine {
    /// All schedules with their latest and next fire. Those of a configuration file are named `config.NAME`.
    pub async fn schedules(&self) -> StoreResult<Vec<ScheduleRow>> {
        match self.inspect(Inspect::Schedules).await? {
            Inspected::Schedules(rows) => Ok(rows),
            other => Err(mixed_up(&other)),
        }
    }

    /// Makes or changes a schedule beside those of the configuration; false when it was there just so. The names of
    /// configured schedules are refused.
    pub async fn put_schedule(&self, schedule: ScheduleSettings, actor: &str) -> Result<bool, EngineError> {
        if schedule.name.as_str().starts_with(CONFIGURED) {
            let problem = format!(
                "{:?} belongs to the configuration: {CONFIGURED}… names its schedules",
                schedule.name
            );
            return Err(Invalid { what: "schedule name", problem }.into());
        }
        let name = schedule.name.clone();
        self.put_named(name, schedule, actor).await
    }

    /// Removes a schedule; false when there was none. One that the configuration names comes back with the next start
    /// of a worker.
    pub async fn remove_schedule(&self, tenant: Tenant, name: &str, actor: &str) -> StoreResult<bool> {
        let action = ControlAction::RemoveSchedule { tenant, name: name.to_owned() };
        Ok(self.control(action, actor).await?.changed)
    }

    /// Brings the store's configured schedules to what the configuration file says. A worker does this at its start;
    /// without a configuration file it does nothing.
    pub async fn apply_schedules(&self) -> Result<AppliedSchedules, EngineError> {
        let settings = self.settings();
        let Some(wanted) = &settings.schedules else { return Ok(AppliedSchedules::default()) };
        let mut applied = AppliedSchedules::default();
        let mut names = Vec::with_capacity(wanted.len());
        for schedule in wanted {
            let name = schedule_name(&format!("{CONFIGURED}{}", schedule.name))?;
            names.push((schedule.tenant.clone(), name.clone()));
            match self.put_named(name, schedule.clone(), ACTOR).await? {
                true => applied.put += 1,
                false => applied.unchanged += 1,
            }
        }
        for row in self.schedules().await? {
            let Schedule { tenant, name, .. } = row.schedule;
            let ours = name.as_str().starts_with(CONFIGURED);
            if ours && !names.contains(&(tenant.clone(), name.clone())) {
                applied.removed += usize::from(self.remove_schedule(tenant, name.as_str(), ACTOR).await?);
            }
        }
        Ok(applied)
    }

    async fn put_named(
        &self,
        name: QueueName,
        schedule: ScheduleSettings,
        actor: &str,
    ) -> Result<bool, EngineError> {
        let policy = self.queue(&schedule.queue)?.append_policy(&schedule.tenant);
        let ScheduleSettings { tenant, cron, zone, queue, key, payload, .. } = schedule;
        let schedule = Schedule { tenant, name, cron, zone, queue, key, payload, policy };
        Ok(self.control(ControlAction::PutSchedule(schedule), actor).await?.changed)
    }
}
