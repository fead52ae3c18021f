//! Held: what another session's open transaction does to claims in PostgreSQL.
//!
//! As long as it is open, the server keeps every version of every row that was changed since. A claim that walks over
//! dead versions gets slower with each round, and the keys here are used again and again, which is the worst case.

use std::time::Duration;

use crate::place::Fresh;
use crate::rounds::Rounds;
use crate::{Figure, Sizes, Watch, grouped, median, targets};

const KEYS: usize = 1_000;
/// Lanes of one round.
const LANES: usize = 100;

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let rounds = Rounds::open(fresh).await?;
    let part = sizes.held / 3;
    measure(&rounds, part / 2).await?; // Not counted: everything is cold.
    let before = measure(&rounds, part).await?;

    let mut other = fresh.postgres().await?;
    let transaction = other.transaction().await?;
    // A number of its own and a snapshot: what holds back the vacuum whatever the isolation level.
    transaction
        .batch_execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()")
        .await?;
    let first = measure(&rounds, part).await?;
    let second = measure(&rounds, part).await?;
    let last = measure(&rounds, part).await?;
    transaction.rollback().await?;
    let after = measure(&rounds, part).await?;

    let seconds = grouped(part.as_secs_f64().round());
    let figure = |what: String, samples: &Vec<f64>| Figure::new("held", what, median(samples.clone()), "ms");
    let ratio = median(last.clone()) / median(before.clone());
    Ok(vec![
        figure(format!("claim of {LANES} lanes p50, before"), &before),
        figure(format!("p50 in the first {seconds} s of an open transaction"), &first),
        figure(format!("p50 in the next {seconds} s"), &second),
        figure(format!("p50 in the last {seconds} s"), &last),
        figure("p50 after its end".to_owned(), &after),
        Figure::new("held", "last against before", ratio, "×").at_most(targets::HELD_TIMES),
        Figure::new("held", "rounds while it was open", (first.len() + second.len() + last.len()) as f64, ""),
    ])
}

/// Rounds of append, claim and settle for this long: how long each claim took.
async fn measure(rounds: &Rounds, long: Duration) -> anyhow::Result<Vec<f64>> {
    let watch = Watch::start();
    let mut samples = Vec::new();
    for round in 0.. {
        let first = round * LANES % KEYS;
        rounds.append(first..first + LANES).await?;
        let claim = Watch::start();
        let batches = rounds.claim(LANES).await?;
        samples.push(claim.millis());
        anyhow::ensure!(batches.len() == LANES, "{} of {LANES} lanes were claimed", batches.len());
        rounds.settle(batches).await?;
        if watch.elapsed() >= long {
            break;
        }
    }
    Ok(samples)
}
