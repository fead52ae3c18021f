//! `quell pause` and `quell resume`: stop or go on handing over a queue, or one key of it.
//!
//! A pause stops new claims only: events are still accepted, windows go on, a running handler finishes. The pauses of a
//! queue and of its keys are independent of each other.

use clap::Args;
use quell::quell_core::event::QueueName;
use quell::quell_core::store::QueueScope;

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The kind of work
    queue: String,
    /// Only this key; without it the whole queue
    key: Option<String>,
    /// Of the key: its owner. Of the queue: only for this tenant, instead of all of them
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: PauseArgs, pause: bool, global: &Global) -> Result<u8, Failure> {
    let actor = context::actor(&args.by);
    let lane = match &args.key {
        Some(key) => Some(context::lane_key(&args.queue, key, args.tenant.as_deref())?),
        None => None,
    };
    let tenant = context::tenant_of(args.tenant.as_deref())?;
    let scope = QueueScope { queue: QueueName::new(&args.queue)?, tenant: tenant.clone() };
    let engine = context::open_existing(global).await?;
    context::known_queue(&engine, &scope.queue).await?;
    let changed = match (lane.clone(), pause) {
        (Some(lane), true) => engine.pause(lane, &actor).await?,
        (Some(lane), false) => engine.resume(lane, &actor).await?,
        (None, true) => engine.pause_queue(scope, &actor).await?,
        (None, false) => engine.resume_queue(scope, &actor).await?,
    };
    if args.form.json {
        output::json(&serde_json::json!({
            "queue": args.queue,
            "key": args.key,
            "tenant": tenant,
            "action": if pause { "pause" } else { "resume" },
            "changed": changed,
        }))?;
        return Ok(0);
    }
    let what = match (&lane, &tenant) {
        (Some(lane), _) => format!("lane {lane}"),
        (None, Some(tenant)) => format!("queue {} of tenant {tenant}", args.queue),
        (None, None) => format!("queue {}", args.queue),
    };
    output::line(match (pause, changed) {
        (true, true) => format!("paused {what}; events are kept, `quell resume` goes on"),
        (true, false) => format!("{what} was paused already"),
        (false, true) => format!("resumed {what}"),
        (false, false) => format!("{what} was not paused"),
    })?;
    Ok(0)
}
