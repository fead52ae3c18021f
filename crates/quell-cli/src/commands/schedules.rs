//! `quell schedules`: what comes by the calendar, and the hand that puts and removes it.
//!
//! Schedules of `quell.toml` are put into the store by a starting worker, under names that begin with `config.`; this
//! command makes others beside them. A schedule fires once, whatever the number of workers.

mod calendar;

use clap::{Args, Subcommand};
use quell::CONFIGURED;
use quell::config::ScheduleSettings;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::cron::{Cron, Zone};
use quell::quell_core::event::{Key, QueueName, Tenant};
use quell::quell_core::schedule::{ScheduleRow, schedule_name};

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output::{self, Columns, cell};
use crate::payload;
use crate::times;

const LANE_CHARS: usize = 40;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  quell schedules                                                all of them
  quell schedules put nightly --cron '0 3 * * *' --queue report --key daily
  quell schedules put open --cron '0 9 * * mon-fri' --zone Europe/Berlin --queue shop --key 7
  quell schedules next '0 3 * * *' --zone Europe/Berlin -n 3     when would it fire?
  quell schedules remove nightly

Schedules of quell.toml ([schedules.NAME]) are shown as config.NAME and changed in the file."
)]
pub(crate) struct SchedulesArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a schedule, or change one; unchanged it keeps its place in time
    Put(PutArgs),
    /// Remove a schedule; events that it has made stay
    Remove(RemoveArgs),
    /// When would it fire? Opens no store
    Next(calendar::NextArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only schedules for this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Only schedules of this tenant
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct PutArgs {
    /// Unique for its tenant: a-z, 0-9, '.', '_' and '-'
    name: String,
    /// Minute, hour, day of the month, month, day of the week; or @daily and the like
    #[arg(long, value_name = "CRON", value_parser = cron)]
    cron: Cron,
    /// The time zone whose clock is meant, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = zone)]
    zone: Zone,
    /// Where its events go
    #[arg(long, value_name = "QUEUE")]
    queue: String,
    /// Who its events belong to
    #[arg(long, value_name = "KEY")]
    key: String,
    /// The payload of its events as JSON; `-` reads it from stdin
    #[arg(long, value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    payload: String,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Its name, as the list shows it
    name: String,
    /// The owner of the schedule
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

fn cron(text: &str) -> Result<Cron, String> {
    text.parse().map_err(|problem: quell::quell_core::cron::CronProblem| problem.to_string())
}

fn zone(text: &str) -> Result<Zone, String> {
    text.parse().map_err(|problem: quell::quell_core::cron::ZoneProblem| problem.to_string())
}

pub(crate) async fn run(args: SchedulesArgs, global: &Global) -> Result<u8, Failure> {
    match args.action {
        None => list(&args.list, global).await,
        Some(Action::Put(args)) => put(args, global).await,
        Some(Action::Remove(args)) => remove(args, global).await,
        Some(Action::Next(args)) => calendar::run(&args),
    }
}

async fn list(args: &ListArgs, global: &Global) -> Result<u8, Failure> {
    let queue = context::queue_of(args.queue.as_deref())?;
    let tenant = context::tenant_of(args.tenant.as_deref())?;
    let engine = context::open_existing(global).await?;
    let mut rows = engine.schedules().await?;
    rows.retain(|row| {
        queue.as_ref().is_none_or(|queue| *queue == row.schedule.queue)
            && tenant.as_ref().is_none_or(|tenant| *tenant == row.schedule.tenant)
    });
    if args.form.json {
        let items: Vec<_> = rows.iter().map(as_json).collect();
        output::json(&serde_json::json!({ "items": items, "next": null }))?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    let mut table = Columns::new(&["NAME", "CRON", "ZONE", "LANE", "LAST FIRE", "NEXT FIRE"]);
    for row in &rows {
        let schedule = &row.schedule;
        table.row([
            cell(name_of(row)),
            cell(&schedule.cron),
            cell(schedule.zone.name()),
            cell(times::one_line(&format!("{}/{}", schedule.queue, schedule.key), LANE_CHARS)),
            cell(times::short_or_dash(fired_at(row), now)),
            cell(times::short_or_dash(row.next_at, now)),
        ]);
    }
    table.write()?;
    if rows.is_empty() {
        output::say("no schedules; `quell schedules put` makes one, or [schedules.NAME] in quell.toml");
    }
    Ok(0)
}

/// The latest fire, if there was one: a schedule that has not fired begins at the moment of its making, which is no
/// moment of its calendar.
fn fired_at(row: &ScheduleRow) -> Option<Timestamp> {
    let before = Timestamp::from_millis(row.last_fire.as_millis() - 1);
    let fire = row.schedule.cron.next_after(&row.schedule.zone, before);
    fire.filter(|fire| *fire == row.last_fire)
}

fn name_of(row: &ScheduleRow) -> String {
    let (tenant, name) = (&row.schedule.tenant, &row.schedule.name);
    if tenant.is_none() { name.to_string() } else { format!("{tenant}:{name}") }
}

fn as_json(row: &ScheduleRow) -> serde_json::Value {
    let schedule = &row.schedule;
    serde_json::json!({
        "name": schedule.name,
        "tenant": schedule.tenant,
        "cron": schedule.cron.to_string(),
        "zone": schedule.zone.name(),
        "queue": schedule.queue,
        "key": schedule.key,
        "payload": schedule.payload,
        "configured": schedule.name.as_str().starts_with(CONFIGURED),
        "last_fire": fired_at(row),
        "next_at": row.next_at,
    })
}

async fn put(args: PutArgs, global: &Global) -> Result<u8, Failure> {
    let schedule = ScheduleSettings {
        tenant: context::tenant_of(args.tenant.as_deref())?.unwrap_or_else(Tenant::none),
        name: schedule_name(&args.name)?,
        cron: args.cron,
        zone: args.zone,
        queue: QueueName::new(&args.queue)?,
        key: Key::new(&args.key)?,
        payload: payload::json(&args.payload)?,
    };
    let (name, tenant) = (schedule.name.clone(), schedule.tenant.clone());
    let loaded = context::load(global, quell::config::Flags::default())?;
    context::configured_queue(&loaded.settings, &schedule.queue)?;
    let engine = context::open_now(&loaded).await?;
    let changed = engine.put_schedule(schedule, &context::actor(&args.by)).await?;
    let rows = engine.schedules().await?;
    let row = rows.iter().find(|row| row.schedule.name == name && row.schedule.tenant == tenant);
    if args.form.json {
        let mut answer = row.map_or(serde_json::Value::Null, as_json);
        answer["changed"] = changed.into();
        output::json(&answer)?;
        return Ok(0);
    }
    let now = context::now(&engine).await?;
    let next = match row.and_then(|row| row.next_at) {
        Some(next) => format!("it fires at {}", times::full(next, now)),
        None => "it does not fire any more".to_owned(),
    };
    output::line(match changed {
        true => format!("put schedule {name}: {next}"),
        false => format!("schedule {name} was there just so: {next}"),
    })?;
    Ok(0)
}

async fn remove(args: RemoveArgs, global: &Global) -> Result<u8, Failure> {
    let name = schedule_name(&args.name)?;
    let tenant = context::tenant_of(args.tenant.as_deref())?.unwrap_or_else(Tenant::none);
    let engine = context::open_existing(global).await?;
    let removed = engine.remove_schedule(tenant, name.as_str(), &context::actor(&args.by)).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "name": name, "action": "remove", "changed": removed }))?;
    }
    if !removed {
        return Err(Failure::new(failure::NOT_FOUND, format!("there is no schedule {name}"))
            .help("`quell schedules` lists them"));
    }
    if !args.form.json {
        output::line(format!("removed schedule {name}; events that it has made stay"))?;
    }
    if name.as_str().starts_with(CONFIGURED) {
        output::say("it comes back with the next start of a worker as long as quell.toml has it");
    }
    Ok(0)
}
