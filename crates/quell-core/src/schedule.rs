//! Events that come by the calendar: a schedule fires once, whatever the number of processes.
//!
//! A schedule keeps `last_fire`, raised in the transaction that stores the event; nothing at or before it fires again,
//! and after downtime only the latest missed fire runs. The event gets an id made of the schedule's name and the
//! moment, so not even a lost answer can make two of one fire.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::cron::{Cron, Zone};
use crate::event::{AppendPolicy, EventId, Invalid, Key, LaneKey, NewEvent, NewEventId, Payload};
use crate::event::{QueueName, Tenant};
use crate::limits;

/// What fires when.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// Whose schedule it is; its events belong to the same tenant.
    pub tenant: Tenant,
    /// Unique within its tenant: 1 to 64 characters of a-z, 0-9, '.', '_' and '-'.
    pub name: QueueName,
    /// When it fires.
    pub cron: Cron,
    /// The time zone whose clock `cron` means.
    pub zone: Zone,
    /// Where its events go.
    pub queue: QueueName,
    /// Whose events they are.
    pub key: Key,
    /// What they say.
    pub payload: Payload,
    /// By which they are taken in.
    pub policy: Arc<AppendPolicy>,
}

/// A schedule with its place in time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ScheduleRow {
    /// What fires, and when.
    pub schedule: Schedule,
    /// Nothing at or before this moment fires (again). At first the moment of its making.
    pub last_fire: Timestamp,
    /// The next fire; nothing when the calendar has none.
    pub next_at: Option<Timestamp>,
}

impl ScheduleRow {
    /// A schedule that starts to count now.
    pub fn new(schedule: Schedule, now: Timestamp) -> Self {
        let next_at = schedule.cron.next_after(&schedule.zone, now);
        ScheduleRow { schedule, last_fire: now, next_at }
    }

    /// A changed schedule keeps its place in time: nothing that has fired fires again. As long as the timetable is the
    /// same, a fire that was missed still runs; another timetable begins now.
    #[must_use]
    pub fn changed(&self, schedule: Schedule, now: Timestamp) -> Self {
        if (&schedule.cron, &schedule.zone) == (&self.schedule.cron, &self.schedule.zone) {
            return ScheduleRow { schedule, ..self.clone() };
        }
        let last_fire = self.last_fire.max(now);
        ScheduleRow { last_fire, ..ScheduleRow::new(schedule, last_fire) }
    }

    /// The event of the latest fire that is due, if any; the schedule moves on behind it.
    pub fn fire(&mut self, now: Timestamp) -> Option<(NewEvent, Timestamp)> {
        if self.next_at.is_none_or(|next| next > now) {
            return None;
        }
        let s = &self.schedule;
        let Some(at) = s.cron.latest_at_or_before(&s.zone, self.last_fire, now) else {
            // The zone's rules have changed since: what was the next fire is none any more.
            self.next_at = s.cron.next_after(&s.zone, now);
            return None;
        };
        self.last_fire = at;
        self.next_at = s.cron.next_after(&s.zone, at.max(now));
        let id =
            EventId::new(format!("schedule/{}/{at}", s.name)).expect("a name and a moment are a short text");
        let lane = LaneKey { tenant: s.tenant.clone(), queue: s.queue.clone(), key: s.key.clone() };
        Some((NewEvent::new(lane, NewEventId::Given(id), s.payload.clone(), s.policy.clone()), at))
    }
}

/// Checks the name of a schedule.
pub fn schedule_name(text: &str) -> Result<QueueName, Invalid> {
    debug_assert_eq!(limits::SCHEDULE_NAME_BYTES_MAX, limits::QUEUE_NAME_BYTES_MAX);
    QueueName::new(text).map_err(|e| Invalid { what: "schedule name", ..e })
}
