//! The shapes of the comparison with other systems: the same work as `jobs`, `keyed` and `burst`, in the same code, without the raw
//! limit beside it and with what only a comparison asks for. `quell-bench-compare` runs it as a process of its own, like a peer.

use std::collections::BTreeMap;
use std::time::Duration;

use quell::{Incoming, Outcome, Queue, Run, from_fn};

use crate::place::Fresh;
use crate::targets::Targets;
use crate::{Figure, Place, Sizes, Watch, append_all, burst, drain, jobs, key, keyed, payload};

/// Runs one shape (`jobs`, `keyed` or `burst`) in a fresh part of the place. `one` bounds the time of appends by one caller alone.
///
/// # Errors
///
/// When the store fails, or when an event was lost or handled twice.
pub async fn compare(
    place: &Place,
    shape: &str,
    sizes: &Sizes,
    one: Duration,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let fresh = place.fresh().await?;
    let figures = shape_of(&fresh, shape, sizes, one).await;
    let removed = fresh.remove().await;
    let figures = figures?;
    removed?;
    Ok(figures)
}

async fn shape_of(
    fresh: &Fresh,
    shape: &str,
    sizes: &Sizes,
    one: Duration,
) -> anyhow::Result<BTreeMap<String, f64>> {
    match shape {
        "jobs" => plain_jobs(fresh, sizes, one).await,
        "keyed" => {
            let figures = keyed::run(fresh, sizes, &Targets::of(fresh.kind)).await?;
            let events = sizes.keyed_events as f64;
            // The workload itself fails when a run is missing; its second figure is overlaps and disorder together.
            Ok(named([("seconds", value(&figures, 0)?), ("overlaps", value(&figures, 1)?)])
                .into_iter()
                .chain(named([("disorders", 0.0), ("handled", events)]))
                .collect())
        }
        "burst" => {
            let figures = burst::run(fresh, sizes).await?;
            let sent = (sizes.burst_keys * sizes.burst_rounds) as f64;
            let names = ["append_seconds", "runs", "delivered", "late_p50", "late_p99"];
            let mut figures: BTreeMap<String, f64> =
                names.iter().zip(&figures).map(|(name, figure)| ((*name).to_owned(), figure.value)).collect();
            figures.insert("sent".to_owned(), sent);
            Ok(figures)
        }
        other => anyhow::bail!("there is no shape {other:?}; choose from jobs, keyed, burst"),
    }
}

async fn plain_jobs(fresh: &Fresh, sizes: &Sizes, limit: Duration) -> anyhow::Result<BTreeMap<String, f64>> {
    let queue = Queue::none().handler(from_fn(|_: Run| async { Outcome::succeeded() }));
    let (engine, worker) = fresh.open(queue, 1_024).await?;

    let (watch, mut count) = (Watch::start(), 0);
    while count < sizes.jobs / 4 && watch.elapsed() < limit {
        engine.append(vec![Incoming::new("bench", &key(count), payload(count))?]).await?;
        count += 1;
    }
    let one = watch.rate(count);

    let each = sizes.jobs / 4 / jobs::CALLERS;
    let callers = jobs::append_by_callers(&engine, count, each).await?;
    let first = count + each * jobs::CALLERS;

    let watch = Watch::start();
    append_all(&engine, first..sizes.jobs).await?;
    let bulk = watch.rate(sizes.jobs - first);

    let watch = Watch::start();
    let report = drain(&engine, &worker).await?;
    let drained = watch.rate(sizes.jobs);
    let settled = engine.stats().await?.iter().map(|q| q.totals.succeeded).sum::<u64>();
    anyhow::ensure!(settled == sizes.jobs as u64, "{settled} of {} jobs succeeded: {report:?}", sizes.jobs);
    let all = sizes.jobs as f64;
    let figures = [("one", one), ("callers", callers), ("bulk", bulk), ("drain", drained)];
    Ok(named(figures)
        .into_iter()
        .chain(named([("appended", all), ("drained", all), ("distinct", all)]))
        .collect())
}

fn named<const N: usize>(figures: [(&str, f64); N]) -> BTreeMap<String, f64> {
    figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn value(figures: &[Figure], index: usize) -> anyhow::Result<f64> {
    let figure = figures.get(index).ok_or_else(|| anyhow::anyhow!("the workload has no figure {index}"))?;
    Ok(figure.value)
}
