//! The worker that a hook starts: brings in what lies in the spool, reads transcripts, and ends when nothing is left.
//!
//! Its standard input is the lock that says that somebody works on the file. Before it ends it gives the lock up and looks
//! once more: whoever stored an event meanwhile relied on the lock.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quell::config::{Env, Origin, StoreChoice, StoreUrl};
use quell::quell_core::totals::Totals;
use quell::worker::OwnHandler;
use quell::{Engine, Shutdown, Worker, WorkerOptions, clock};
use quell_transcripts::archive::Archive;
use quell_transcripts::forward::{Forward, Server};
use quell_transcripts::handle::Transcripts;
use quell_transcripts::hook::bring_in;
use quell_transcripts::journal::Journal;
use quell_transcripts::spool::Spool;

use super::ForwardArgs;
use super::quick::see_that_somebody_works;
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
    // The hook that started it has told what is wrong with the settings, if something is.
    let (loaded, _) = transcripts::load_or_usual(global, &Env::from_process())?;
    let place = Place::of(&loaded.settings, forward.server(), &loaded.env)?;
    let lock = File::from(std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned()?);
    tokio::select! {
        done = work(&loaded, &place, &lock) => {
            if let Err(failure) = &done {
                // Nobody sees what it says.
                Journal::append(&place.journal(), &failure.to_string());
            }
            done.map(|()| 0)
        }
        // Leases expire, and the next hook starts another one.
        stop = signals.next_stop() => Ok(stop.exit_code()),
    }
}

async fn work(loaded: &Loaded, place: &Place, lock: &File) -> Result<(), Failure> {
    let engine = open(loaded, place).await?;
    let handler = handler(loaded, place, &engine).await?;
    loop {
        let before = totals(&engine).await?.accepted;
        let claimed = until_idle(&engine, &place.database, handler.clone(), loaded).await?;
        lock.unlock()?;
        let totals = totals(&engine).await?;
        // What nobody may have now (a pause) is left, unless an event came that was not there at the last look.
        let left = is_left(&totals) && (claimed > 0 || totals.accepted != before);
        // Whoever has the lock now does what is left.
        let spooled = !Spool::beside(&place.database).is_empty()?;
        if !(left || spooled) || lock.try_lock().is_err() {
            return Ok(());
        }
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
            wishes.forget_old(&local, engine.wall()).await?;
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

/// Starts a worker if something waits and nobody works. Only a help: whoever hooks next tries it again.
pub(crate) async fn see_to_what_waits(engine: &Engine, place: &Place, global: &Global) {
    let spooled = Spool::beside(&place.database).is_empty().is_ok_and(|empty| !empty);
    let here = place.target == Target::Here;
    if spooled || here && totals(engine).await.is_ok_and(|totals| is_left(&totals)) {
        let _ = see_that_somebody_works(place, global);
    }
}

fn is_left(totals: &Totals) -> bool {
    totals.delayed + totals.buffered + totals.in_flight > 0
}

async fn totals(engine: &Engine) -> Result<Totals, Failure> {
    let queue = transcripts::queue();
    let mut sum = Totals::default();
    for stats in engine.stats().await?.iter().filter(|stats| stats.queue == queue) {
        let its = &stats.totals;
        sum.accepted += its.accepted;
        sum.delayed += its.delayed;
        sum.buffered += its.buffered;
        sum.in_flight += its.in_flight;
    }
    Ok(sum)
}
