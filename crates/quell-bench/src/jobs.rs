//! Jobs: the plain job queue, a lane with one event and no window.

use futures_util::future::try_join_all;
use quell::{Engine, Incoming, Outcome, Queue, Run, from_fn};

use crate::raw::Raw;
use crate::{Figure, Options, Watch, drain, key, open, payload, scratch};

const CALLERS: usize = 64;
const BULK: usize = 1_000;

pub(crate) async fn run(options: &Options, raw: &Raw) -> anyhow::Result<Vec<Figure>> {
    let folder = scratch(&options.folder)?;
    let queue = Queue::none().handler(from_fn(|_: Run| async { Outcome::succeeded() }));
    let (engine, worker) = open(&folder, queue, 1_024).await?;
    let (one_by_one, bulk) = (options.jobs / 4, options.jobs - options.jobs / 4);

    let watch = Watch::start();
    try_join_all((0..CALLERS).map(|caller| append_singly(engine.clone(), caller, one_by_one))).await?;
    let callers = watch.rate(one_by_one / CALLERS * CALLERS);

    let watch = Watch::start();
    for start in (0..bulk).step_by(BULK) {
        let end = (start + BULK).min(bulk);
        let events = (start..end).map(|n| Incoming::new("bench", &key(one_by_one + n), payload(n)));
        engine.append(events.collect::<Result<_, _>>()?).await?;
    }
    let in_bulk = watch.rate(bulk);

    let appended = one_by_one / CALLERS * CALLERS + bulk;
    let watch = Watch::start();
    let report = drain(&engine, &worker).await?;
    let drained = watch.rate(appended);
    let settled = engine.stats().await?.iter().map(|q| q.totals.succeeded).sum::<u64>();
    anyhow::ensure!(settled == appended as u64, "{settled} of {appended} jobs succeeded: {report:?}");

    let callers =
        Figure::new("jobs", format!("append, {CALLERS} callers, one event each"), callers, "events/s");
    let callers = callers.against(raw.at_64);
    let reached = callers.ratio >= Some(0.15);
    let in_bulk =
        Figure::new("jobs", format!("append, bulk of {BULK}"), in_bulk, "events/s").against(raw.at_1000);
    let bulk_reached = in_bulk.ratio >= Some(0.08);
    let drained =
        Figure::new("jobs", "drain, no-op handler, distinct keys", drained, "lanes/s").against(raw.at_1000);
    let drain_reached = drained.ratio >= Some(0.08);
    Ok(vec![
        callers.target("≥ 0.15 × raw at 64 rows", reached),
        in_bulk.target("≥ 0.08 × raw at 1,000 rows", bulk_reached),
        drained.target("≥ 0.08 × raw at 1,000 rows", drain_reached),
    ])
}

async fn append_singly(engine: Engine, caller: usize, all: usize) -> anyhow::Result<()> {
    let mine = all / CALLERS;
    // A task of its own, so that callers share both cores as real ones do.
    let work = async move {
        for n in caller * mine..(caller + 1) * mine {
            engine.append(vec![Incoming::new("bench", &key(n), payload(n))?]).await?;
        }
        anyhow::Ok(())
    };
    tokio::spawn(work).await?
}
