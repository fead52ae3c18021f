//! `quell schedules next`: when would an expression fire? No store is asked.

use clap::Args;
use jiff::tz::TimeZone;
use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::cron::{Cron, Zone};

use crate::args::Form;
use crate::failure::Failure;
use crate::output::{self, Columns, cell};
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell schedules next '*/15 9-17 * * mon-fri'
  quell schedules next @daily --zone America/New_York -n 3")]
pub(super) struct NextArgs {
    /// Minute, hour, day of the month, month, day of the week; or @daily and the like
    #[arg(value_name = "CRON", value_parser = super::cron)]
    cron: Cron,
    /// The time zone whose clock is meant
    #[arg(long, value_name = "ZONE", default_value = "UTC", value_parser = super::zone)]
    zone: Zone,
    /// How many fires
    #[arg(short = 'n', long = "number", value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    number: u16,
    #[command(flatten)]
    form: Form,
}

pub(super) fn run(args: &NextArgs) -> Result<u8, Failure> {
    let now = RealTime::new().wall();
    let after = |moment: &Timestamp| args.cron.next_after(&args.zone, *moment);
    let fires: Vec<Timestamp> =
        std::iter::successors(after(&now), after).take(usize::from(args.number)).collect();
    if args.form.json {
        let items = fires.iter().map(|at| serde_json::json!({ "at": at, "local": local(&args.zone, *at) }));
        output::json(&serde_json::json!({
            "cron": args.cron.to_string(),
            "zone": args.zone.name(),
            "items": items.collect::<Vec<_>>(),
            "next": null,
        }))?;
        return Ok(0);
    }
    let mut table = Columns::new(&["FIRES AT", "ON THE CLOCK", "FROM NOW"]);
    for at in fires {
        table.row([cell(at), cell(local(&args.zone, at)), cell(times::relative(at, now))]);
    }
    table.write()?;
    Ok(0)
}

/// What the clock on the wall shows there, with the day of the week, because that is what people check.
fn local(zone: &Zone, at: Timestamp) -> String {
    let rules = TimeZone::get(zone.name()).unwrap_or(TimeZone::UTC);
    match jiff::Timestamp::from_millisecond(at.as_millis()) {
        Ok(moment) => moment.to_zoned(rules).strftime("%a %Y-%m-%d %H:%M %Z").to_string(),
        Err(_) => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_on_the_wall_is_that_of_the_zone() {
        let at = Timestamp::from_millis(1_772_330_400_000);
        assert_eq!(local(&Zone::utc(), at), "Sun 2026-03-01 02:00 UTC");
        assert_eq!(local(&"Europe/Berlin".parse().unwrap(), at), "Sun 2026-03-01 03:00 CET");
    }
}
