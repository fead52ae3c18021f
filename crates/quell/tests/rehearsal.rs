//! `quell::testing` as its users meet it: plain tests, a virtual clock, the shipped worker.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, QueueName};
use quell::quell_core::lifecycle::{Change, RunState};
use quell::quell_core::retry::RetryPolicy;
use quell::quell_core::source::SourceRules;
use quell::quell_core::window::FiredBy;
use quell::testing::{Happened, Rehearsal, Staging, What, WorkerNews};
use quell::worker::OwnHandler;
use quell::{
    DuringRun, Incoming, Outcome, QuellBuilder, Queue, RedriveWish, Run, WorkerOptions, clock, from_fn,
};
use serde_json::json;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

fn works() -> impl quell::Handler {
    from_fn(|_: Run| async {})
}

fn lane(queue: &str, key: &str) -> LaneKey {
    LaneKey::new(QueueName::new(queue).unwrap(), Key::new(key).unwrap())
}

#[test]
fn a_burst_is_one_batch_at_the_very_millisecond_that_the_window_names() {
    let mut rehearsal =
        Rehearsal::start(|program| program.queue("chat", Queue::quiet(ms(500)).handler(works()))).unwrap();
    for n in 0..3 {
        rehearsal.send("chat", "ada", json!({ "n": n })).unwrap();
        rehearsal.advance(ms(200));
    }
    rehearsal.advance(ms(299));
    assert_eq!((rehearsal.now(), rehearsal.batches().len()), (ms(899), 0));
    rehearsal.advance(ms(1));
    let batches = rehearsal.batches();
    let [only] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!((only.at, only.batch.events.len(), only.batch.fired_by), (ms(900), 3, FiredBy::Quiet));
    assert_eq!(only.waited(), ms(900));
    assert!(only.has_succeeded() && !only.was_retried() && !only.is_dead());
    assert_eq!(only.worker, "worker-1");
    assert!(rehearsal.nothing_is_lost());
}

#[test]
fn a_key_that_is_never_quiet_is_handed_over_at_its_cap() {
    let queue = || Queue::quiet(secs(1)).max_wait(secs(5)).handler(works());
    let mut rehearsal = Rehearsal::start(|program| program.queue("chat", queue())).unwrap();
    for _ in 0..20 {
        rehearsal.send("chat", "ada", json!(1)).unwrap();
        rehearsal.advance(ms(500));
    }
    assert!(rehearsal.until_idle(secs(60)));
    let fired: Vec<(Duration, FiredBy)> =
        rehearsal.batches().iter().map(|seen| (seen.at, seen.batch.fired_by)).collect();
    assert_eq!(fired, [(secs(5), FiredBy::Cap), (ms(10_000), FiredBy::Cap)]);
}

#[test]
fn retries_and_the_dead_letter_come_by_the_backoff_of_the_queue_and_a_redrive_mends_it() {
    let broken = Arc::new(AtomicU32::new(u32::MAX));
    let shared = broken.clone();
    let retry = RetryPolicy { attempts: 3, ..RetryPolicy::default() };
    let mut rehearsal = Rehearsal::start(move |program| {
        let handler = from_fn(move |_: Run| {
            let left = shared.clone();
            async move {
                match left.load(Ordering::SeqCst) {
                    0 => Outcome::succeeded(),
                    _ => Outcome::retry("no paper"),
                }
            }
        });
        program.queue("print", Queue::none().retry(retry).handler(handler))
    })
    .unwrap();
    rehearsal.send("print", "a", json!({})).unwrap();
    assert!(rehearsal.until_idle(secs(86_400)));
    let ends: Vec<Change> = rehearsal.batches().iter().map(|b| b.end.as_ref().unwrap().change).collect();
    assert_eq!(ends, [Change::Retried, Change::Retried, Change::Exhausted]);
    let retried = rehearsal.batches()[0].end.clone().unwrap();
    assert_eq!(retried.next, Some(rehearsal.batches()[1].at), "it is tried again when it says");
    assert_eq!(retried.error.as_deref(), Some("no paper"));
    let dead = rehearsal.dead();
    assert_eq!((dead.len(), dead[0].state, dead[0].attempts), (1, RunState::Failed, 3));

    broken.store(0, Ordering::SeqCst);
    let engine = rehearsal.engine().clone();
    rehearsal.perform(engine.redrive(dead[0].id, RedriveWish::default(), "me")).unwrap();
    let last = rehearsal.batches().pop().unwrap();
    assert!(last.has_succeeded());
    assert_eq!(last.batch.fired_by, FiredBy::Redrive);
    assert!(rehearsal.nothing_is_lost());
}

#[test]
fn a_crashed_worker_is_followed_by_another_after_one_lease() {
    let slow = from_fn(|_: Run| async { clock::sleep(secs(20)).await });
    let queue = Queue::none().lease(secs(30)).handler(slow);
    let mut rehearsal = Rehearsal::start(|program| program.queue("jobs", queue)).unwrap();
    rehearsal.send("jobs", "a", json!({})).unwrap();
    rehearsal.advance(secs(10));
    assert!(rehearsal.crash_worker(1));
    assert!(!rehearsal.crash_worker(1), "it is gone");
    assert_eq!(rehearsal.start_worker().unwrap(), 2);
    assert!(rehearsal.until_idle(secs(300)));
    let batches = rehearsal.batches();
    let [first, second] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!((first.end.as_ref(), first.worker.as_str()), (None, "worker-1"));
    assert_eq!((second.batch.attempt, second.worker.as_str()), (2, "worker-2"));
    // The lease was renewed once before the crash, and has to run out.
    assert!(second.at >= secs(30) && second.at <= secs(45), "{:?}", second.at);
    assert!(second.batch.token > first.batch.token && second.has_succeeded());
    let lost =
        |one: &Happened| matches!(&one.what, What::LeaseLost { worker: Some(w), .. } if w == "worker-1");
    assert_eq!(rehearsal.happened().iter().filter(|one| lost(one)).count(), 1);
}

#[test]
fn a_stopped_worker_finishes_and_says_what_it_did() {
    let slow = from_fn(|_: Run| async { clock::sleep(secs(3)).await });
    let mut rehearsal =
        Rehearsal::start(|program| program.queue("jobs", Queue::none().handler(slow))).unwrap();
    rehearsal.send("jobs", "a", json!({})).unwrap();
    let report = rehearsal.stop_worker(1).unwrap();
    assert_eq!((report.claimed, report.settled, rehearsal.now()), (1, 1, secs(3)));
    assert!(rehearsal.workers().is_empty());
    rehearsal.send("jobs", "a", json!({})).unwrap();
    assert!(!rehearsal.until_idle(secs(60)), "nobody is there");
    let last = rehearsal.happened().into_iter().rfind(|one| matches!(one.what, What::Worker { .. }));
    let stopped = What::Worker { worker: "worker-1".into(), news: WorkerNews::Stopped };
    assert_eq!(last.unwrap().what, stopped);
}

#[test]
fn newer_events_interrupt_a_handler_and_start_it_over() {
    let queue = Queue::quiet(ms(100)).during_run(DuringRun::Interrupt);
    let answer = from_fn(|_: Run| async { clock::sleep(secs(10)).await });
    let mut rehearsal = Rehearsal::start(|program| program.queue("chat", queue.handler(answer))).unwrap();
    rehearsal.send("chat", "ada", json!("hi")).unwrap();
    rehearsal.advance(secs(2));
    rehearsal.send("chat", "ada", json!("wait")).unwrap();
    assert!(rehearsal.until_idle(secs(60)));
    let batches = rehearsal.batches();
    let [first, second] = &batches[..] else { panic!("{batches:?}") };
    assert_eq!(first.end.as_ref().unwrap().change, Change::Interrupted);
    assert_eq!((second.batch.events.len(), second.batch.fired_by), (2, FiredBy::Merge));
    assert!(second.at < secs(3) && second.has_succeeded());
}

#[test]
fn a_source_paces_its_runs() {
    let rules = SourceRules { per_minute: Some(6), burst: 1, ..SourceRules::default() };
    let mut rehearsal = Rehearsal::start(|program| {
        let queue = Queue::none().source("erp").handler(works());
        program.source("erp", rules).queue("orders", queue)
    })
    .unwrap();
    for key in ["a", "b", "c"] {
        rehearsal.send("orders", key, json!({})).unwrap();
    }
    assert!(rehearsal.until_idle(secs(300)));
    let at: Vec<Duration> = rehearsal.batches().iter().map(|seen| seen.at).collect();
    assert_eq!(at, [secs(0), secs(10), secs(20)]);
}

#[test]
fn delayed_events_are_seen_when_they_enter() {
    let mut rehearsal =
        Rehearsal::start(|program| program.queue("mail", Queue::none().handler(works()))).unwrap();
    let later = Incoming::new("mail", "ada", quell::quell_core::event::Payload::of(&json!({}))).unwrap();
    let receipts = rehearsal.append(vec![later.delay(secs(60))]).unwrap();
    assert_eq!(receipts[0].run_id, None);
    rehearsal.advance(secs(59));
    assert!(rehearsal.batches().is_empty());
    assert!(rehearsal.until_idle(secs(10)));
    let entered = rehearsal.happened().into_iter().find(|one| matches!(one.what, What::Entered { .. }));
    assert_eq!(entered.unwrap().at, secs(60));
    assert_eq!(rehearsal.batches()[0].at, secs(60));
}

/// The schedules of a configuration file fire by the virtual calendar.
#[test]
fn settings_of_a_file_are_rehearsed_with_other_handlers() {
    let text = "[queues.reports]\nwindow = \"none\"\n\
                [schedules.nightly]\ncron = \"0 3 * * *\"\nqueue = \"reports\"\nkey = \"all\"\n";
    let source = SourceText::new("quell.toml", text);
    let config = Config::parse(&source.text, &source.name).unwrap();
    let input =
        SettingsInput { config: Some((config, source)), env: &BTreeMap::new(), flags: Flags::default() };
    let settings = Settings::resolve(input).unwrap();
    let handler = OwnHandler { handler: Arc::new(works()), time_limit: None };
    let handlers = BTreeMap::from([(QueueName::new("reports").unwrap(), handler)]);
    let options = WorkerOptions { handlers, ..WorkerOptions::default() };
    // Ten minutes before three.
    let begins = Timestamp::from_millis(1_772_333_400_000);
    let staging = Staging { begins, ..Staging::default() };
    let mut rehearsal = Rehearsal::of_settings(&staging, settings, options).unwrap();
    rehearsal.advance(secs(2 * 86_400));
    let at: Vec<Duration> = rehearsal.batches().iter().map(|seen| seen.at).collect();
    assert_eq!(at, [secs(600), secs(600 + 86_400)], "{}", begins);
}

#[test]
fn a_paused_key_waits_and_goes_on_when_it_is_resumed() {
    let mut rehearsal =
        Rehearsal::start(|program| program.queue("jobs", Queue::none().handler(works()))).unwrap();
    let engine = rehearsal.engine().clone();
    rehearsal.send("jobs", "a", json!({})).unwrap();
    rehearsal.perform(engine.pause(lane("jobs", "a"), "me")).unwrap();
    rehearsal.send("jobs", "a", json!({})).unwrap();
    rehearsal.send("jobs", "b", json!({})).unwrap();
    assert!(!rehearsal.until_idle(secs(30)));
    rehearsal.perform(engine.resume(lane("jobs", "a"), "me")).unwrap();
    assert!(rehearsal.until_idle(secs(1)));
    assert_eq!(rehearsal.batches().len(), 3);
    let hands: Vec<&'static str> = rehearsal.happened().iter().filter_map(hand).collect();
    assert_eq!(hands, ["pause", "resume"]);
}

fn hand(one: &Happened) -> Option<&'static str> {
    match one.what {
        What::Hand { action, .. } => Some(action),
        _ => None,
    }
}

/// A day of trouble over several workers, as text.
fn day(seed: u64) -> String {
    fn queues(program: QuellBuilder) -> QuellBuilder {
        static CHANCE: Mutex<Option<clock::Chance>> = Mutex::new(None);
        *CHANCE.lock().unwrap() = Some(clock::Chance::seeded(5));
        let handler = from_fn(|_: Run| async {
            let draw = CHANCE.lock().unwrap().as_ref().unwrap().unit();
            clock::sleep(Duration::from_secs_f64(draw * 5.0)).await;
            if draw < 0.3 { Outcome::retry("not now") } else { Outcome::succeeded() }
        });
        program.queue("jobs", Queue::quiet(ms(700)).during_run(DuringRun::Interrupt).handler(handler))
    }
    let staging = Staging { seed, workers: 3, ..Staging::default() };
    let mut rehearsal = Rehearsal::staged(&staging, queues).unwrap();
    for round in 0..40_u64 {
        for key in 0..7_u64 {
            rehearsal.send("jobs", &format!("k{key}"), json!(round)).unwrap();
            rehearsal.advance(ms(round * 31 % 170));
        }
        if round == 20 {
            rehearsal.crash_worker(2);
        }
    }
    assert!(rehearsal.until_idle(secs(86_400)));
    assert!(rehearsal.nothing_is_lost());
    let told = rehearsal.happened().into_iter().map(|one| match one.what {
        // The identity of a worker has the number of this process in it; everything else is the same in every process.
        What::Claimed { batch, worker } => {
            format!("{:?} {} {} {:?} {worker}\n", one.at, batch.run_id, batch.events.len(), batch.fired_by)
        }
        what => format!("{:?} {what:?}\n", one.at),
    });
    told.collect()
}

/// The draws of the handler are shared by the runs of one test, so both days are lived by it alone.
#[test]
fn the_same_seed_gives_the_same_day_and_another_seed_another() {
    let first = day(1);
    assert_eq!(first, day(1));
    assert_ne!(first, day(2));
    assert!(first.contains("LeaseLost") && first.contains("Retried") && first.contains("Interrupted"));
}
