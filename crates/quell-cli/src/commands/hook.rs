//! `quell hook`: what coding agents call at every hook event, and putting it into their settings.
//!
//! Capturing itself never comes here: `hook/quick.rs` sees the command line first and answers in milliseconds. What starts
//! workers is in `hook/quick.rs`, too, what they do in `hook/work.rs`, and `hook/install.rs` edits the agent's settings.

mod install;
pub(crate) mod quick;
pub(crate) mod work;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::Global;
use crate::failure::{self, Failure};

#[derive(Debug, Args)]
#[command(after_help = "\
Without a subcommand it reads one hook event (JSON) from stdin and keeps it. It prints nothing and exits with 0 whatever
happens, so that an agent never waits for it or fails because of it; what went wrong is in a log beside the database.
Sessions are kept in --store, QUELL_STORE, or else quell/quell.db in the data folder of the user.

Examples:
  quell hook install                           capture every session of this user from now on
  quell hook install --server https://quell.example.com --token-file ~/.quell-token
  quell hook status                            is it installed, and does it work?
  quell sessions                               what was captured")]
pub(crate) struct HookArgs {
    #[command(subcommand)]
    command: Option<HookCommand>,
    #[command(flatten)]
    forward: ForwardArgs,
    /// Print {\"continue\":true} where the agent's rules make that safe
    #[arg(long, global = true)]
    print_continue: bool,
}

/// Keeping sessions elsewhere.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ForwardArgs {
    /// Send what is captured to this Quell server; kept on this host while the server is away
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,
    /// The file that holds the server's token (scope ingest)
    #[arg(long, value_name = "FILE", requires = "server", global = true)]
    pub(crate) token_file: Option<PathBuf>,
}

impl ForwardArgs {
    pub(crate) fn server(&self) -> Option<(String, Option<PathBuf>)> {
        self.server.clone().map(|url| (url, self.token_file.clone()))
    }
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Register with the agent, keeping everything else in its settings
    Install(install::InstallArgs),
    /// Take the registration out again
    Uninstall(install::UninstallArgs),
    /// What is registered, what was captured, and what went wrong
    Status(install::StatusArgs),
    /// The worker that a hook starts.
    #[command(hide = true)]
    Work,
}

pub(crate) async fn run(args: HookArgs, global: &Global) -> Result<u8, Failure> {
    match args.command {
        Some(HookCommand::Install(wish)) => {
            install::install(&wish, &args.forward, args.print_continue, global)
        }
        Some(HookCommand::Uninstall(wish)) => install::uninstall(&wish),
        Some(HookCommand::Status(wish)) => install::status(&wish, &args.forward, global).await,
        Some(HookCommand::Work) => work::run(&args.forward, global).await,
        // `quick.rs` takes whatever looks like a hook; what comes here has a flag that it does not know.
        None => Err(Failure::new(failure::USAGE, "an option of hook is not understood").help(
            "quell help hook; for capturing: quell hook [--store URL] [--print-continue] [--server URL]",
        )),
    }
}
