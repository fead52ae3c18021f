//! `quell flush`: hand a key over now.

use clap::Args;

use crate::args::{ByHand, Form, Global};
use crate::context;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct FlushArgs {
    /// The kind of work
    queue: String,
    /// Who its events belong to
    key: String,
    /// The owner of the key
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    #[command(flatten)]
    by: ByHand,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: FlushArgs, global: &Global) -> Result<u8, Failure> {
    let lane = context::lane_key(&args.queue, &args.key, args.tenant.as_deref())?;
    let engine = context::open_existing(global).await?;
    context::known_queue(&engine, &lane.queue).await?;
    let changed = engine.flush(lane.clone(), &context::actor(&args.by)).await?;
    if args.form.json {
        output::json(&serde_json::json!({ "lane": lane, "action": "flush", "changed": changed }))?;
    } else if changed {
        output::line(format!("flushed {lane}: it is due now"))?;
    } else {
        output::line(format!("{lane} has nothing to hasten"))?;
    }
    Ok(0)
}
