//! The worker that a hook starts: brings in what lies in the spool, reads transcripts, and ends when nothing is left.
//!
//! Its standard input is the lock that says that somebody works on the file. Before it ends it gives the lock up and looks
//! once more: whoever stored an event meanwhile relied on the lock.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quell::config::{Origin, StoreChoice, StoreUrl};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::totals::Totals;
use quell::worker::OwnHandler;
use quell::{Engine, Shutdown, Worker, WorkerOptions, clock};
use quell_transcripts::archive::Archive;
use quell_transcripts::forward::{Forward, Server};
use quell_transcripts::handle::Transcripts;
use quell_transcripts::hook::bring_in;
use quell_transcripts::lazily::Wishes;
use quell_transcripts::reading::SessionFilter;
use quell_transcripts::spool::Spool;

use super::ForwardArgs;
use crate::args::Global;
use crate::context::{self, Loaded};
use crate::failure::{self, Failure};
use crate::outgoing;
use crate::signals::Signals;
use crate::transcripts::{self, Place, Target};

/// How often the spool is looked at while there is work.
const SPOOL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(forward: &ForwardArgs, global: &Global) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    // The hook has told what is wrong with them.
    let (loaded, _) = transcripts::load_leniently(global)?;
    let place = Place::of(&loaded.settings, forward.server(), &loaded.env)?;
    let lock = File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    let work = async {
        let engine = open(&loaded, &place).await?;
        let handler = handler(&loaded, &place, &engine).await?;
        loop {
            let claimed = until_idle(&engine, &place.database, handler.clone(), &loaded).await?;
            lock.unlock()?;
            let left =
                claimed > 0 && (!Spool::beside(&place.database).is_empty()? || is_waiting(&engine).await?);
            // Whoever has it now does what is left.
            if !left || lock.try_lock().is_err() {
                return Ok::<_, Failure>(());
            }
        }
    };
    tokio::select! {
        done = work => done.map(|()| 0),
        // Leases expire, and the next hook starts another one.
        stop = signals.next() => Ok(stop.exit_code()),
    }
}

/// The queue of this host.
async fn open(loaded: &Loaded, place: &Place) -> Result<Engine, Failure> {
    let url = StoreUrl::parse(&format!("sqlite:{}", place.database.display()))
        .map_err(|problem| Failure::new(failure::USAGE, problem))?;
    let mut settings = loaded.settings.clone();
    settings.store = StoreChoice { url, origin: Origin::Default };
    let here = Loaded { settings, file: loaded.file.clone(), env: loaded.env.clone() };
    context::open_patiently(&here).await
}

async fn handler(loaded: &Loaded, place: &Place, engine: &Engine) -> Result<OwnHandler, Failure> {
    let wishes = transcripts::wishes(loaded)?;
    let local = Archive::open(engine.store().clone()).await?;
    let ingest = match &place.target {
        Target::Here => {
            forget_old(&local, &wishes, engine.wall()).await?;
            wishes.ingest(local)
        }
        Target::Store => {
            let store =
                quell::open::open(&loaded.settings.store, loaded.settings.worker.start_timeout).await?;
            wishes.ingest(Archive::open(store).await?)
        }
        Target::Server { url, token_file } => {
            let token = token_file.as_deref().map(read_token).transpose()?;
            let server = Server::new(outgoing::client(url)?, url, token);
            wishes.ingest_into(Arc::new(Forward::new(local, server)))
        }
    };
    Ok(OwnHandler { handler: Arc::new(Transcripts::new(ingest)), time_limit: None })
}

fn read_token(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::new(failure::USAGE, format!("{}: {e}", path.display())))?;
    Ok(text.trim().to_owned())
}

/// Works until nothing is due, runs or waits. Says how many runs there were, and events brought in.
async fn until_idle(
    engine: &Engine,
    database: &Path,
    handler: OwnHandler,
    loaded: &Loaded,
) -> Result<u64, Failure> {
    let mut told = engine.store().wakeups();
    let mut brought = bring_in(engine, database).await?;
    let options = WorkerOptions {
        queues: vec![transcripts::queue()],
        until_idle: true,
        handlers: [(transcripts::queue(), handler)].into(),
        env: loaded.env.clone(),
        ..WorkerOptions::default()
    };
    let mut work = Box::pin(Worker::new(engine.clone(), options)?.run(Shutdown::new()));
    let report = loop {
        tokio::select! {
            report = &mut work => break report,
            // A hook tells us; should that be lost, the next look finds what it left.
            () = told.woken() => brought += bring_in(engine, database).await?,
            () = clock::sleep(SPOOL_EVERY) => brought += bring_in(engine, database).await?,
        }
    };
    Ok(report.claimed + u64::try_from(brought).unwrap_or(u64::MAX))
}

pub(crate) async fn is_waiting(engine: &Engine) -> Result<bool, Failure> {
    let left = |t: &Totals| t.delayed + t.buffered + t.in_flight > 0;
    let queue = transcripts::queue();
    Ok(engine.stats().await?.iter().any(|stats| stats.queue == queue && left(&stats.totals)))
}

/// Forgets sessions that are older than the retention, if there is one.
pub(crate) async fn forget_old(archive: &Archive, wishes: &Wishes, now: Timestamp) -> Result<(), Failure> {
    let Some(kept) = wishes.retention() else { return Ok(()) };
    let before = now.before(kept).as_millis();
    let old =
        archive.session_ids(&SessionFilter { before: Some(before), ..SessionFilter::default() }).await?;
    if !old.is_empty() {
        let gone = archive.forget(&old, before).await?;
        tracing::info!(sessions = gone, "transcripts.forgotten");
    }
    Ok(())
}
