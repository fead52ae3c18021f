//! The commands, one file each, and the way from the command line to them.

pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod cancel;
pub(crate) mod chat;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod dead;
pub(crate) mod deliveries;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod flush;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod lane;
pub(crate) mod lanes;
pub(crate) mod listen;
pub(crate) mod man;
pub(crate) mod pause;
pub(crate) mod prices;
pub(crate) mod purge;
pub(crate) mod redrive;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod search;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod simulate;
pub(crate) mod sources;
pub(crate) mod store;
pub(crate) mod tail;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod torture;
pub(crate) mod trigger;
pub(crate) mod work;

use crate::args::{Command, Global};
use crate::failure::Failure;
use crate::output;

/// Runs a command; the answer is its exit code.
pub(crate) async fn run(command: Command, global: &Global) -> Result<u8, Failure> {
    match command {
        Command::Init(args) => init::run(&args, global),
        Command::Serve(args) => serve::run(args, global).await,
        Command::Work(args) => work::run(args, global).await,
        Command::Listen(args) => listen::run(args, global).await,
        Command::Send(args) => send::run(args, global).await,
        Command::Lanes(args) => lanes::run(&args, global).await,
        Command::Lane(args) => lane::run(&args, global).await,
        Command::Runs(args) => runs::run(&args, global).await,
        Command::Run(args) => run::run(&args, global).await,
        Command::Dead(args) => dead::run(&args, global).await,
        Command::Audit(args) => audit::run(&args, global).await,
        Command::Schedules(args) => schedules::run(args, global).await,
        Command::Sources(args) => sources::run(args, global).await,
        Command::Token(args) => token::run(args, global).await,
        Command::Top(args) => top::run(args, global).await,
        Command::Tail(args) => tail::run(&args, global).await,
        Command::Deliveries(args) => deliveries::run(args, global).await,
        Command::Trigger(args) => trigger::run(args, global).await,
        Command::Hook(args) => hook::run(args, global).await,
        Command::Chat(args) => chat::run(args, global).await,
        Command::Prices(args) => prices::run(args, global).await,
        Command::Sessions(args) => sessions::run(args, global).await,
        Command::Session(args) => session::run(&args, global).await,
        Command::Search(args) => search::run(&args, global).await,
        Command::Flush(args) => flush::run(args, global).await,
        Command::Pause(args) => pause::run(args, true, global).await,
        Command::Resume(args) => pause::run(args, false, global).await,
        Command::Cancel(args) => cancel::run(args, global).await,
        Command::Redrive(args) => redrive::run(args, global).await,
        Command::Purge(args) => purge::run(args, global).await,
        Command::Check(args) => check::run(&args, global),
        Command::Doctor(args) => doctor::run(&args, global).await,
        Command::Backup(args) => backup::run(&args, global).await,
        Command::Restore(args) => backup::restore(&args, global).await,
        Command::Store(args) => store::run(args).await,
        Command::Simulate(args) => simulate::run(args, global).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Bench(args) => bench::run(&args, global).await,
        Command::Torture(args) => torture::run(&args, global).await,
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::DemoWorker(args) => demo::work(&args).await,
        Command::BenchWorker(args) => bench::work(&args).await,
        Command::TortureChild(args) => torture::child(&args).await,
    }
}

/// What `quell` says without arguments.
pub(crate) fn welcome() -> Result<u8, Failure> {
    output::text(WELCOME)?;
    Ok(0)
}

const WELCOME: &str = "\
Quell turns bursts of events into one orderly run per key: events are stored durably as they arrive, wait until the
burst is over, and are handed to exactly one worker as one ordered batch.

Try:
  quell demo                                    see it work, in ten seconds and a temporary folder
  quell serve                                   run a worker on ./quell.db
  quell send hello world '{\"text\":\"hi\"}'        in another terminal: an event for the key `world` of queue `hello`

Read on:
  quell help                                    all commands, and the exit codes
  quell help send                               one command
  docs/guide/first-steps.md                     a tour of ten minutes
  docs/reference/cli.md                         every command with its output
";
