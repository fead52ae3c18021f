//! The holes of the older job queue, each shown closed by a test of its name.

use std::time::Duration;

use quell_collectors::local::{Endpoint, Fault};
use rustix::process::Signal;
use serde_json::Value;

use super::stall::{Kind, NO_CACHE, Stall};
use crate::hook::host::{millis, until};

/// A worker sleeps through its lock (SIGSTOP), another one does its job, and the first one wakes up with older prices in hand.
#[test]
fn a_stale_worker_completing_after_reclaim_changes_nothing() {
    let stall = Stall::new(Kind::Sqlite, NO_CACHE);
    stall.intake("coin");
    stall.market.behave(|market| market.delay = Duration::from_secs(2));
    let stale = stall.worker("stale", 1, &[]);
    stall.quell(&["prices", "collect", "coin", "--source", "shop"]).ok();
    until("it is asked for", || stall.market.count(Endpoint::Shop) > 0);
    stale.signal(Signal::STOP);
    // The answer is on its way to the sleeper; whoever asks next is answered at once.
    stall.market.behave(|market| market.delay = Duration::ZERO);
    let fresh = stall.worker("fresh", 1, &[]);
    stall.idle();
    let (run, points) = (stall.runs().remove(0), stall.points("coin"));
    assert_eq!(run["state"], "succeeded", "{run}");
    assert!(run["worker"].as_str().unwrap().contains("fresh"), "{run}");

    millis(2_500);
    stale.signal(Signal::CONT);
    let lines = stale.stop();
    assert!(
        lines.iter().any(|line| line.text().contains("lease")),
        "it learns that it was too late: {lines:#?}"
    );
    assert_eq!(stall.runs().remove(0), run, "nothing of the run is changed");
    assert_eq!(stall.points("coin"), points, "and nothing of the prices");
    fresh.stop();
}

/// While a source is down its jobs wait; only those that really met the outage have used attempts.
#[test]
fn an_open_breaker_burns_no_attempts() {
    let more = "[sources.shop]\ncache = false\nbreaker = { failures = 2, cooldown = \"3s\" }\n\
        [queues.collect]\nconcurrency = 1\nretry = { base = \"200ms\", attempts = 3, jitter = 0.0 }\n";
    let stall = Stall::new(Kind::Sqlite, more);
    stall.intakes(8);
    stall.market.fail_always(Endpoint::Shop, Some(Fault::ServerError));
    let worker = stall.worker("worker-1", 300, &[]);
    stall.quell(&["prices", "collect", "--source", "shop"]).ok();
    until("the breaker is open", || {
        let page = stall.json(&["prices", "source", "list"]);
        let rows = page["items"].as_array().unwrap().clone();
        rows.iter().any(|row| row["name"] == "shop" && row["state"]["breaker"] == "open")
    });
    // Longer than all attempts of all jobs would take without a breaker.
    millis(2_000);
    let used: u64 = stall.runs().iter().map(|run| run["attempts"].as_u64().unwrap()).sum();
    assert!(used <= 3, "{used} attempts were used, by jobs that met the outage");
    assert!(stall.runs().iter().all(|run| run["state"] != "failed"));
    stall.market.fail_always(Endpoint::Shop, None);
    stall.idle();
    assert!(
        stall.runs().iter().all(|run| run["state"] == "succeeded"),
        "nothing was given up: {:#?}",
        stall.runs()
    );
    worker.stop();
}

/// A job without a token is not claimed at all: no worker sleeps with a lease in its hand, and other work goes on.
#[test]
fn no_worker_sleeps_in_the_rate_limiter_holding_a_lease() {
    let more = "[sources.shop]\ncache = false\nrate_limit_per_minute = 1\nburst = 1\n[queues.other]\nwindow = \"none\"\n";
    let stall = Stall::new(Kind::Sqlite, more);
    // One request for each job, and not one for robots.txt before it.
    let text = stall.folder.read("quell.toml").replace("items = ", "robots = false\nitems = ");
    stall.folder.write("quell.toml", &text);
    stall.intakes(6);
    let worker = stall.worker("worker-1", 300, &["--concurrency", "2"]);
    stall.quell(&["prices", "collect", "--source", "shop"]).ok();
    until("the token is used", || stall.runs().iter().filter(|run| run["state"] == "succeeded").count() == 1);
    let state = |run: &Value| run["state"].as_str().unwrap().to_owned();
    let states: Vec<String> = stall.runs().iter().map(state).collect();
    assert!(
        !states.contains(&"running".to_owned()),
        "nobody holds a lease while there is no token: {states:?}"
    );
    let waiting: Vec<Value> = stall.runs().into_iter().filter(|run| run["state"] == "pending").collect();
    assert_eq!(waiting.len(), 5);
    assert!(waiting.iter().all(|run| run["attempts"] == 0), "and no attempt is counted: {waiting:#?}");
    let key = format!("{}:shop", "coin-0006");
    let why = stall.json(&["lane", "collect", &key])["why"].as_str().unwrap().to_owned();
    assert!(why.contains("shop"), "the reason is told: {why}");
    // Both places of the worker are free for others.
    for key in ["a", "b", "c"] {
        stall.quell(&["send", "other", key, "1", "--wait"]).ok();
    }
    worker.stop();
}

/// A job whose worker died before its first sign of life has a lease all the same, and is seen and taken back.
#[test]
fn a_job_that_runs_without_any_heartbeat_is_seen_and_reclaimed() {
    let stall = Stall::new(Kind::Sqlite, NO_CACHE);
    stall.intake("coin");
    stall.market.fail_next(Endpoint::Shop, Fault::Silent);
    let dead = stall.worker("dead", 4, &[]);
    stall.quell(&["prices", "collect", "coin", "--source", "shop"]).ok();
    stall.lane_is("coin", "running");
    dead.signal(Signal::KILL);
    drop(dead);
    until("it is listed as stuck", || {
        let stuck = stall.json(&["runs", "--queue", "collect", "--stuck", "1s"]);
        stuck["items"].as_array().is_some_and(|rows| rows.len() == 1)
    });
    let other = stall.worker("other", 4, &[]);
    stall.idle();
    let run = stall.runs().remove(0);
    assert_eq!(run["state"], "succeeded", "{run}");
    assert!(
        stall
            .audit()
            .iter()
            .any(|record| { record["prior_worker"].as_str().is_some_and(|worker| worker.contains("dead")) })
    );
    other.stop();
}
