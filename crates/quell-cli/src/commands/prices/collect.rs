//! `quell prices collect`: asks for prices, one event for each intake and enabled source.

use clap::Args;
use quell::Incoming;
use quell::quell_core::event::{EventId, SourceName, Tenant};
use quell_collectors::book::Listing;
use quell_collectors::{fan_out, request};

use super::{Desk, Owner, Params};
use crate::args::{Form, Global};
use crate::failure::{self, Failure};
use crate::output;
use crate::progress;
use crate::times;

/// Intakes that are looked at together.
const STEP: usize = 200;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell prices collect                                  every intake at every enabled source
  quell prices collect morgan-1921-d eagle-2024         these
  quell prices collect --source ebay                    all, at one source
  quell prices collect morgan-1921-d --source ebay --param condition=graded

`quell serve` or `quell work` does the work, as fast as each source allows. By the calendar:
  [schedules.prices]
  cron = \"0 3 * * *\"
  queue = \"collect\"
  key = \"all\"
  payload = { all = true }")]
pub(super) struct CollectArgs {
    /// Only these intakes
    #[arg(value_name = "INTAKE")]
    intakes: Vec<String>,
    /// Only this source; may be given several times
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// The id of the request, so that repeating this command asks once
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    params: Params,
    #[command(flatten)]
    owner: Owner,
    #[command(flatten)]
    form: Form,
}

pub(super) async fn run(args: CollectArgs, global: &Global) -> Result<u8, Failure> {
    let desk = Desk::open(global).await?;
    let tenant = args.owner.tenant()?;
    let sources = sources(&desk, &args, &tenant).await?;
    for id in &args.intakes {
        desk.must_know(&tenant, id).await?;
    }
    let bar = progress::wheel("sending");
    let mut sent = Sent::default();
    if args.intakes.is_empty() {
        let mut cursor = None;
        loop {
            let listing = Listing { tenant: Some(tenant.clone()), cursor, limit: STEP };
            let page = desk.book.intakes(&listing).await?;
            let ids: Vec<&str> = page.items.iter().map(|intake| intake.id.as_str()).collect();
            send(&desk, &args, &tenant, &sources, &ids, &mut sent).await?;
            bar.set_message(format!("sent {}", sent.events));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    } else {
        let ids: Vec<&str> = args.intakes.iter().map(String::as_str).collect();
        for part in ids.chunks(STEP) {
            send(&desk, &args, &tenant, &sources, part, &mut sent).await?;
        }
    }
    bar.finish_and_clear();
    if args.form.json {
        let names: Vec<&str> = sources.iter().map(SourceName::as_str).collect();
        let Sent { intakes, events, duplicates } = sent;
        output::json(&serde_json::json!({
            "intakes": intakes, "sources": names, "sent": events, "duplicates": duplicates,
        }))?;
        return Ok(0);
    }
    if sent.intakes == 0 {
        return Err(Failure::new(failure::NOT_FOUND, "there are no intakes")
            .help("`quell prices intake add` adds one"));
    }
    let (intakes, asked) =
        (times::count(sent.intakes, "intake"), times::count(sources.len() as u64, "source"));
    output::line(format!("sent {} for {intakes} at {asked}", times::count(sent.events, "request")))?;
    if sent.duplicates > 0 {
        output::say(format!("{} had been sent before", times::count(sent.duplicates, "request")));
    }
    output::say("`quell prices watch` shows what comes of it");
    Ok(0)
}

#[derive(Default)]
struct Sent {
    intakes: u64,
    events: u64,
    duplicates: u64,
}

/// The sources that are asked: those that were named, else all that are enabled.
async fn sources(desk: &Desk, args: &CollectArgs, tenant: &Tenant) -> Result<Vec<SourceName>, Failure> {
    let prices = desk.prices()?;
    let enabled = fan_out::enabled(&desk.engine, tenant, prices.sources.keys()).await?;
    let mut named = Vec::new();
    for text in &args.sources {
        let name = SourceName::new(text)?;
        if !prices.sources.contains_key(&name) {
            return Err(super::source::unknown(prices, &name));
        }
        if !enabled.contains(&name) {
            let text = format!("source {name} is disabled, so nothing would come of it");
            return Err(
                Failure::new(failure::REFUSED, text).help(format!("quell prices source enable {name}"))
            );
        }
        named.push(name);
    }
    let chosen = if args.sources.is_empty() { enabled } else { named };
    if chosen.is_empty() {
        let text = match prices.sources.is_empty() {
            true => "the configuration describes no source of prices",
            false => "every source is disabled",
        };
        return Err(Failure::new(failure::REFUSED, text)
            .help("`quell prices source add` describes one, `quell prices source enable` lets it go"));
    }
    Ok(chosen)
}

async fn send(
    desk: &Desk,
    args: &CollectArgs,
    tenant: &Tenant,
    sources: &[SourceName],
    intakes: &[&str],
    sent: &mut Sent,
) -> Result<(), Failure> {
    let params = args.params.map();
    let mut events = Vec::with_capacity(intakes.len() * sources.len());
    for intake in intakes {
        for source in sources {
            let mut event: Incoming = request::event(tenant, intake, source, &params)?;
            event.id = args.id.as_deref().map(EventId::new).transpose()?;
            events.push(event);
        }
    }
    if !events.is_empty() {
        let receipts = desk.engine.append(events).await?;
        sent.events += receipts.len() as u64;
        sent.duplicates += receipts.iter().filter(|receipt| receipt.duplicate).count() as u64;
    }
    sent.intakes += intakes.len() as u64;
    Ok(())
}
