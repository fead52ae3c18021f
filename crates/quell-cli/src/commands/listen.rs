//! `quell listen --forward-to URL`: `quell serve` for somebody who writes the other side. Whatever the configuration says, every
//! batch is sent to that address, signed, and what it answered is a line on the screen.

use clap::Args;

use crate::args::Global;
use crate::commands::work::{self, Forwarding, Staff, Task};
use crate::failure::{self, Failure};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell listen --forward-to http://localhost:3000/batch
  quell trigger github/push --count 3          in another terminal: a burst, signed as GitHub would
  quell send jobs 7 '{\"text\":\"hi\"}'            or any event

Each batch is a POST as the handler `http` makes it; docs/guide/push.md says what it carries and what answers mean. It is signed with
the secret in QUELL_FORWARD_SECRET, else with a new one, which is shown at the start.")]
pub(crate) struct ListenArgs {
    /// Where every batch goes, whatever handler its queue has
    #[arg(long, value_name = "URL")]
    forward_to: String,
    /// Where HTTP is served, 127.0.0.1:7717 unless QUELL_LISTEN or quell.toml says otherwise; port 0 is any free one. An address that
    /// other machines can reach is refused while the store has no token
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    #[command(flatten)]
    staff: Staff,
}

pub(crate) async fn run(args: ListenArgs, global: &Global) -> Result<u8, Failure> {
    let ListenArgs { forward_to, listen, staff } = args;
    if staff.processes > 1 {
        return Err(Failure::new(failure::USAGE, "--processes is for `quell serve` and `quell work`"));
    }
    let forwarding = Forwarding::new(&forward_to)?;
    work::employ(staff, Task::Serve { listen, no_work: false, forwarding: Some(forwarding) }, global).await
}
