//! One schedule, from `[schedules.NAME]` to what the store keeps.
//!
//! Everything is checked when the file is read: the expression, the zone, the queue, the key, the size of the payload. A
//! schedule that the calendar allows but the clock changes of its zone always skip is a warning.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_core::clock::Timestamp;
use quell_core::cron::{Cron, HORIZON_YEARS, Zone};
use quell_core::event::{Key, Payload, QueueName, Tenant};
use quell_core::limits;

use super::error::ConfigError;
use super::queue::known_queue;
use super::raw::ScheduleConfig;
use super::resolver::{Found, Resolver, required, text_or};
use super::{Origin, QueueSettings, ScheduleSettings};
use crate::schedules::CONFIGURED;

/// Any moment will do to see whether a schedule ever fires: the search goes on for 40 years.
const SOME_MOMENT: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub(super) fn resolve_schedule(
    r: &mut Resolver<'_>,
    name: &Found<String>,
    file: ScheduleConfig,
    queues: &BTreeMap<QueueName, Arc<QueueSettings>>,
) -> Result<ScheduleSettings, ConfigError> {
    let most = limits::SCHEDULE_NAME_BYTES_MAX - CONFIGURED.len();
    let checked = QueueName::new(&name.value).ok().filter(|name| name.as_str().len() <= most);
    let Some(checked) = checked else {
        let problem = format!(
            "schedule name {:?} is not 1 to {most} characters of a-z, 0-9, '.', '_' and '-'",
            name.value
        );
        return Err(r.error(name, problem));
    };
    let path = |setting: &str| format!("schedules.{checked}.{setting}");

    let cron = required(r, "schedule", name, file.cron, "cron", "cron = \"0 3 * * *\"")?;
    let parsed: Cron = cron.value.parse().map_err(|e| r.error(&cron, format!("cron: {e}")))?;
    r.note(path("cron"), parsed.to_string(), &cron.origin);
    let zone = text_or(r, file.zone, "UTC");
    let parsed_zone: Zone = zone.value.parse().map_err(|e| r.error(&zone, format!("zone: {e}")))?;
    r.note(path("zone"), parsed_zone.name(), &zone.origin);

    let queue = required(r, "schedule", name, file.queue, "queue", "queue = \"report\"")?;
    let target = known_queue(r, &queue, queues)?;
    r.note(path("queue"), target.name.as_str(), &queue.origin);
    let key = required(r, "schedule", name, file.key, "key", "key = \"daily\"")?;
    let parsed_key = Key::new(&key.value).map_err(|e| r.error(&key, e.to_string()))?;
    r.note(path("key"), parsed_key.to_string(), &key.origin);

    let payload = match file.payload {
        Some(written) => r.placed(written),
        None => {
            let empty = toml::Value::Table(toml::Table::new());
            Found { value: empty, origin: Origin::Default, span: 0..0 }
        }
    };
    let json = as_json(&payload.value).map_err(|problem| r.error(&payload, problem))?;
    let stored = Payload::of(&json);
    let (size, max) = (stored.len(), target.append.payload_bytes);
    if size > max {
        let problem = format!("a payload of {size} bytes; the queue {:?} allows {max}", queue.value);
        return Err(r.error(&payload, problem).help("raise max_payload of the queue, or send less"));
    }
    r.note(path("payload"), stored.as_str(), &payload.origin);
    let tenant = text_or(r, file.tenant, "");
    let parsed_tenant = Tenant::new(&tenant.value).map_err(|e| r.error(&tenant, e.to_string()))?;
    let shown = if parsed_tenant.is_none() { "none".to_owned() } else { parsed_tenant.to_string() };
    r.note(path("tenant"), shown, &tenant.origin);

    Ok(ScheduleSettings {
        tenant: parsed_tenant,
        name: checked,
        cron: parsed,
        zone: parsed_zone,
        queue: target.name.clone(),
        key: parsed_key,
        payload: stored,
    })
}

/// A rhythm that its zone's clock changes skip every time.
pub(super) fn never_fires(schedule: &ScheduleSettings) -> Option<String> {
    if schedule.cron.next_after(&schedule.zone, SOME_MOMENT).is_some() {
        return None;
    }
    Some(format!(
        "the schedule {} ({:?} in {}) does not fire within {HORIZON_YEARS} years: the changes of the clock skip it",
        schedule.name,
        schedule.cron.to_string(),
        schedule.zone.name(),
    ))
}

/// A date has no form of its own in JSON and becomes a text; what JSON cannot say at all is refused.
fn as_json(value: &toml::Value) -> Result<serde_json::Value, String> {
    Ok(match value {
        toml::Value::String(text) => text.clone().into(),
        toml::Value::Integer(n) => (*n).into(),
        toml::Value::Float(n) => {
            let number = serde_json::Number::from_f64(*n);
            number.ok_or_else(|| format!("payload: {n} is no number of JSON"))?.into()
        }
        toml::Value::Boolean(b) => (*b).into(),
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(items) => items.iter().map(as_json).collect::<Result<Vec<_>, _>>()?.into(),
        toml::Value::Table(table) => {
            let entries = table.iter().map(|(name, value)| Ok((name.clone(), as_json(value)?)));
            serde_json::Value::Object(entries.collect::<Result<_, String>>()?)
        }
    })
}
