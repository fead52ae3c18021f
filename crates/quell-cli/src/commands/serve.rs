//! `quell serve`: workers for all queues, with what they handle shown on stdout.

use clap::Args;

use crate::args::Global;
use crate::commands::work::{self, Staff};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    staff: Staff,
}

pub(crate) async fn run(args: ServeArgs, global: &Global) -> Result<u8, Failure> {
    work::employ(args.staff, false, global).await
}
