//! Jobs: the plain job queue, a lane with one event and no window.

use quell::{Engine, Incoming, Outcome, Queue, Run, from_fn};
use tokio::task::JoinSet;

use crate::place::Fresh;
use crate::raw::Raw;
use crate::targets::{Drain, Targets};
use crate::{BULK, Figure, Sizes, Watch, append_all, drain, key, payload};

pub(crate) const CALLERS: usize = 64;

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    targets: &Targets,
    raw: &Raw,
) -> anyhow::Result<Vec<Figure>> {
    let queue = Queue::none().handler(from_fn(|_: Run| async { Outcome::succeeded() }));
    let (engine, worker) = fresh.open(queue, 1_024).await?;
    let each = sizes.jobs / 4 / CALLERS;
    let one_by_one = each * CALLERS;

    let callers = append_by_callers(&engine, 0, each).await?;

    let watch = Watch::start();
    append_all(&engine, one_by_one..sizes.jobs).await?;
    let in_bulk = watch.rate(sizes.jobs - one_by_one);

    let watch = Watch::start();
    let report = drain(&engine, &worker).await?;
    let drained = watch.rate(sizes.jobs);
    let settled = engine.stats().await?.iter().map(|q| q.totals.succeeded).sum::<u64>();
    anyhow::ensure!(settled == sizes.jobs as u64, "{settled} of {} jobs succeeded: {report:?}", sizes.jobs);

    let drained =
        Figure::new("jobs", "drain, no-op handler, distinct keys", drained, "lanes/s").against(raw.at_1000);
    Ok(vec![
        Figure::new("jobs", format!("append, {CALLERS} callers, one event each"), callers, "events/s")
            .against(raw.at_64)
            .at_least_of_raw(targets.callers_of_raw, "64"),
        Figure::new("jobs", format!("append, bulk of {BULK}"), in_bulk, "events/s")
            .against(raw.at_1000)
            .at_least_of_raw(targets.bulk_of_raw, "1,000"),
        match targets.drain {
            Drain::OfRaw(ratio) => drained.at_least_of_raw(ratio, "1,000"),
            Drain::LanesPerSecond(rate) => drained.at_least(rate),
        },
    ])
}

/// Events per second of callers that each append one event after the other.
pub(crate) async fn append_by_callers(engine: &Engine, first: usize, each: usize) -> anyhow::Result<f64> {
    let watch = Watch::start();
    // Tasks of their own, so that callers share both cores as real ones do.
    let mut tasks = JoinSet::new();
    for caller in 0..CALLERS {
        tasks.spawn(append_singly(engine.clone(), first + caller * each, each));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(watch.rate(CALLERS * each))
}

async fn append_singly(engine: Engine, first: usize, count: usize) -> anyhow::Result<()> {
    for n in first..first + count {
        engine.append(vec![Incoming::new("bench", &key(n), payload(n))?]).await?;
    }
    Ok(())
}
