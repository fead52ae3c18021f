//! `quell serve`: HTTP and workers in one process.
//!
//! `--no-work` leaves the work to `quell work` elsewhere. What workers of the handler `log` receive is shown on stdout.

use clap::Args;

use crate::args::Global;
use crate::commands::work::{self, Staff, Task};
use crate::failure::{self, Failure};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell serve                                  HTTP on 127.0.0.1:7717 and workers, on ./quell.db
  quell serve --handler pull                   HTTP only hands work out, to workers of any language
  quell serve --no-work                        HTTP alone; `quell work` runs the handlers elsewhere
  curl -d '{\"key\":\"world\",\"payload\":{\"text\":\"hi\"}}' -H 'Content-Type: application/json' \\
       http://127.0.0.1:7717/v1/queues/hello/events

An address that other machines can reach needs a token first: quell token create NAME --scope admin")]
pub(crate) struct ServeArgs {
    /// Where HTTP is served, 127.0.0.1:7717 unless QUELL_LISTEN or quell.toml says otherwise; port 0 is any free one. An address that
    /// other machines can reach is refused while the store has no token
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Only HTTP: the work is done by `quell work` elsewhere
    #[arg(long)]
    no_work: bool,
    #[command(flatten)]
    staff: Staff,
}

pub(crate) async fn run(args: ServeArgs, global: &Global) -> Result<u8, Failure> {
    let ServeArgs { listen, no_work, staff } = args;
    if no_work && staff.processes > 1 {
        return Err(Failure::new(failure::USAGE, "--processes is for workers, and --no-work wants none"));
    }
    work::employ(staff, Task::Serve { listen, no_work, forwarding: None }, global).await
}
