//! The concurrency test of the older job queue, automated as it was written, and again with different intakes.

use std::collections::BTreeMap;
use std::time::Duration;

use quell_collectors::local::Endpoint;
use rustix::process::Signal;
use serde_json::Value;

use super::stall::{Kind, NO_CACHE, Stall};
use crate::hook::host::until;

/// Who ended each run.
fn by_worker(runs: &[Value]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for run in runs {
        let worker = run["worker"].as_str().unwrap_or("nobody");
        let name = worker.split(':').next().unwrap_or(worker).to_owned();
        *counts.entry(name).or_default() += 1;
    }
    counts
}

/// 20 jobs for one intake and one source, two workers: each job is a run of its own, none of them at the same time.
fn twenty_equal_jobs(kind: Kind) {
    let stall = Stall::new(kind, NO_CACHE);
    stall.intake("coin");
    stall.market.behave(|market| market.delay = Duration::from_millis(30));
    let workers = [stall.worker("worker-1", 300, &[]), stall.worker("worker-2", 300, &[])];
    for _ in 0..20 {
        stall.quell(&["prices", "collect", "coin", "--source", "shop"]).ok();
    }
    stall.idle();
    stall.each_exactly_once(20);
    assert_eq!(
        stall.market.most_alike_at_once(),
        1,
        "two workers never work on one intake and source at once"
    );
    let counted = stall.json(&["runs", "--queue", "collect", "--count-by", "state,worker"]);
    assert!(!counted.to_string().contains("running"), "{counted}");
    assert_eq!(stall.points("coin").len(), 3, "twenty times the same prices are the same prices");
    for worker in workers {
        worker.stop();
    }
}

#[test]
fn twenty_equal_jobs_are_twenty_serial_runs_on_sqlite() {
    twenty_equal_jobs(Kind::Sqlite);
}

#[test]
fn twenty_equal_jobs_are_twenty_serial_runs_on_postgres() {
    twenty_equal_jobs(Kind::Postgres);
}

/// Different intakes are different lanes: they run beside one another, and every worker has its share.
fn different_intakes(kind: Kind, intakes: usize, workers: usize, delay: Duration) {
    let stall = Stall::new(kind, "");
    stall.intakes(intakes);
    stall.market.behave(|market| market.delay = delay);
    let names: Vec<String> = (1..=workers).map(|n| format!("worker-{n}")).collect();
    let started: Vec<_> = names.iter().map(|name| stall.worker(name, 300, &["--concurrency", "2"])).collect();
    let sent = stall.json(&["prices", "collect", "--source", "shop"]);
    assert_eq!(sent["sent"], intakes, "{sent}");
    stall.idle();
    let shares = by_worker(&stall.each_exactly_once(intakes));
    assert_eq!(
        shares.keys().collect::<Vec<_>>(),
        names.iter().collect::<Vec<_>>(),
        "all are used: {shares:?}"
    );
    assert!(stall.market.most_at_once() > 1, "they ran beside one another");
    let shop = stall.market.asked().into_iter().filter(|asked| asked.endpoint == Endpoint::Shop);
    let searches: Vec<String> = shop.map(|asked| asked.query).collect();
    let mut different = searches.clone();
    different.sort();
    different.dedup();
    assert_eq!((searches.len(), different.len()), (intakes, intakes), "each was asked for once");
    let valued = stall.json(&["prices", "valuation", "--limit", "1000"]);
    assert_eq!(valued["items"].as_array().unwrap().len(), intakes.min(1000), "one valuation for each intake");
    for worker in started {
        worker.stop();
    }
}

#[test]
fn twenty_intakes_are_collected_beside_one_another_by_two_workers_on_sqlite() {
    different_intakes(Kind::Sqlite, 20, 2, Duration::from_millis(400));
}

#[test]
fn twenty_intakes_are_collected_beside_one_another_by_six_workers_on_postgres() {
    different_intakes(Kind::Postgres, 20, 6, Duration::from_millis(1500));
}

#[test]
fn two_thousand_intakes_are_collected_exactly_once_by_six_workers_on_sqlite() {
    different_intakes(Kind::Sqlite, 2000, 6, Duration::from_millis(20));
}

#[test]
fn two_thousand_intakes_are_collected_exactly_once_by_two_workers_on_postgres() {
    different_intakes(Kind::Postgres, 2000, 2, Duration::from_millis(20));
}

#[test]
fn a_worker_ended_by_ctrl_c_hands_its_job_back_at_once() {
    let stall = Stall::new(Kind::Sqlite, NO_CACHE);
    stall.intake("coin");
    stall.market.behave(|market| market.delay = Duration::from_secs(15));
    let first = stall.worker("worker-1", 300, &["--grace", "1s"]);
    stall.quell(&["prices", "collect", "coin", "--source", "shop"]).ok();
    until("it is asked for", || !stall.market.asked().is_empty());
    stall.lane_is("coin", "running");
    first.signal(Signal::INT);
    assert_eq!(first.end().0.code(), Some(0));
    let run = stall.runs().remove(0);
    assert_eq!(
        (&run["state"], &run["attempts"]),
        (&"pending".into(), &0.into()),
        "handed back, refunded: {run}"
    );

    stall.market.behave(|market| market.delay = Duration::ZERO);
    let second = stall.worker("worker-2", 300, &[]);
    stall.idle();
    let run = stall.runs().remove(0);
    assert_eq!((&run["state"], &run["attempts"]), (&"succeeded".into(), &1.into()), "{run}");
    assert!(run["worker"].as_str().unwrap().contains("worker-2"), "{run}");
    second.stop();
}

/// The older system's "simulate dead worker", with a shorter lock.
fn killed(kind: Kind) {
    let stall = Stall::new(kind, NO_CACHE);
    stall.intake("coin");
    stall.market.behave(|market| market.delay = Duration::from_secs(15));
    let first = stall.worker("worker-1", 3, &[]);
    stall.quell(&["prices", "collect", "coin", "--source", "shop"]).ok();
    until("it is asked for", || !stall.market.asked().is_empty());
    stall.lane_is("coin", "running");
    first.signal(Signal::KILL);
    drop(first);
    stall.market.behave(|market| market.delay = Duration::ZERO);
    let second = stall.worker("worker-2", 3, &[]);
    stall.idle();
    let run = stall.runs().remove(0);
    assert_eq!(
        (&run["state"], &run["attempts"]),
        (&"succeeded".into(), &2.into()),
        "the crash counts: {run}"
    );
    let reclaimed: Vec<Value> =
        stall.audit().into_iter().filter(|record| record["prior_worker"].is_string()).collect();
    assert!(!reclaimed.is_empty(), "the prior owner is in the audit trail");
    for record in &reclaimed {
        assert!(record["prior_worker"].as_str().unwrap().contains("worker-1"), "{record}");
    }
    stall.no_duplicates();
    assert_eq!(stall.points("coin").len(), 3);
    second.stop();
}

#[test]
fn the_job_of_a_killed_worker_is_reclaimed_after_its_lock_on_sqlite() {
    killed(Kind::Sqlite);
}

#[test]
fn the_job_of_a_killed_worker_is_reclaimed_after_its_lock_on_postgres() {
    killed(Kind::Postgres);
}
