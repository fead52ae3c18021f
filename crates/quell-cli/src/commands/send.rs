//! `quell send`: one event from the command line, or many with `--bulk` (`send/bulk.rs`).
//!
//! The answer comes after the store has made the event durable, and never before.

mod bulk;

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use quell::Incoming;
use quell::quell_core::event::{EventId, Headers, Invalid, Payload};
use quell::quell_core::limits;
use quell::quell_core::store::Receipt;

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::times;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell send chat customer-7 '{\"text\":\"hi\"}'
  quell send chat customer-7 --text 'hi there' --id msg-1
  curl -s https://example.org/order.json | quell send orders 4711 -
  quell send chat --bulk events.ndjson      lines of {\"key\":…,\"payload\":…,\"id\"?:…,\"tenant\"?:…}")]
pub(crate) struct SendArgs {
    /// The kind of work
    queue: String,
    /// Who the event belongs to
    #[arg(required_unless_present = "bulk", conflicts_with = "bulk")]
    key: Option<String>,
    /// The payload as JSON; `-` reads it from stdin; `{}` when left out
    #[arg(value_name = "JSON", conflicts_with = "bulk", allow_negative_numbers = true)]
    payload: Option<String>,
    /// The payload is plain text: it is stored as a JSON string
    #[arg(long, conflicts_with = "bulk")]
    text: bool,
    /// Your id of the event: sent twice, it is stored once
    #[arg(long, conflicts_with = "bulk")]
    id: Option<String>,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Many events, one JSON object per line, from a file or `-` for stdin
    #[arg(long, value_name = "FILE")]
    bulk: Option<PathBuf>,
    /// With --bulk: stop at the first line that is refused
    #[arg(long, requires = "bulk")]
    stop_on_error: bool,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: SendArgs, global: &Global) -> Result<u8, Failure> {
    if let Some(file) = &args.bulk {
        return bulk::run(&args, file, global).await;
    }
    let key = args.key.as_deref().unwrap_or_default();
    let lane = context::lane_key(&args.queue, key, args.tenant.as_deref())?;
    let id = args.id.as_deref().map(EventId::new).transpose()?;
    let payload = payload(&args)?;
    let engine = context::open(global).await?;
    let event = Incoming { lane, id, payload, headers: Headers::new() };
    let receipts = engine.append(vec![event]).await?;
    for receipt in &receipts {
        if args.form.json {
            output::json(receipt)?;
        } else {
            let now = context::now(&engine).await?;
            output::line(told(receipt, now))?;
        }
    }
    Ok(0)
}

fn told(receipt: &Receipt, now: quell::quell_core::clock::Timestamp) -> String {
    let Receipt { event_id, seq, run_id, duplicate, due_at, .. } = receipt;
    let what = if *duplicate { "already there:" } else { "stored" };
    let mut text = format!("{what} {event_id} as {seq}");
    if let Some(run) = run_id {
        text += &format!(" in {run}");
    }
    if let Some(due) = due_at {
        text += &format!(", due {}", if *due > now { times::relative(*due, now) } else { "now".to_owned() });
    }
    text
}

fn payload(args: &SendArgs) -> Result<Payload, Failure> {
    let given = args.payload.as_deref();
    let bytes = match given {
        Some("-") => stdin()?,
        Some(text) => text.as_bytes().to_vec(),
        None if args.text => {
            return Err(Failure::new(failure::USAGE, "--text needs a text, or `-` for stdin"));
        }
        None => b"{}".to_vec(),
    };
    if args.text {
        let text = String::from_utf8(bytes)
            .map_err(|_| Failure::new(failure::USAGE, "the text on stdin is not UTF-8"))?;
        return Ok(Payload::of(&serde_json::Value::String(text)));
    }
    Payload::from_json(&bytes).map_err(|invalid| explain(&invalid, given))
}

/// The usual mistake is a text without quotes, or quotes that the shell has eaten.
fn explain(invalid: &Invalid, given: Option<&str>) -> Failure {
    let refused = Failure::new(failure::USAGE, invalid.to_string());
    match given {
        Some("-") | None => refused,
        Some(text) => {
            let as_string = serde_json::Value::String(text.to_owned()).to_string();
            refused.help(format!(
                "JSON goes in single quotes, like '{{\"text\":\"hi\"}}'; for plain text add --text, or write {}",
                output::quoted(&as_string)
            ))
        }
    }
}

fn stdin() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than is allowed, so that too much is noticed without reading all of it.
    let most = u64::try_from(limits::PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    std::io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
