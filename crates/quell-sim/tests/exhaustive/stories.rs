//! The stories: short, and together they use every verb, every verdict and every hand.

use std::time::Duration;

use quell_core::batch::Batch;
use quell_core::event::{EventId, LaneKey, NewEvent, NewEventId, Overflow, Payload};
use quell_core::lane::OnFailed;
use quell_core::lifecycle::RunState;
use quell_core::outcome::Verdict;
use quell_core::store::*;
use quell_core::window::WindowPolicy;

use super::caller::Caller;

/// The queues of the stories: one for each rule that matters.
pub(crate) mod queue {
    use std::sync::Arc;
    use std::time::Duration;

    use quell_core::event::{AppendPolicy, Key, LaneKey, QueueName};
    use quell_core::lane::{DuringRun, Notify, OnFailed, RetryWith, RunRules};
    use quell_core::lifecycle::RunState;
    use quell_core::store::{ClaimQueue, RunPolicy};
    use quell_core::window::Window;

    pub(crate) const NAMES: [&str; 7] = ["plain", "gate", "interrupt", "block", "bisect", "told", "notices"];

    pub(crate) fn name(text: &str) -> QueueName {
        QueueName::new(text).expect("a name of ours")
    }

    pub(crate) fn lane(queue: &str, key: &str) -> LaneKey {
        LaneKey::new(name(queue), Key::new(key).expect("a key of ours"))
    }

    pub(crate) fn append() -> AppendPolicy {
        AppendPolicy { window: Window::none(), ..AppendPolicy::default() }
    }

    pub(crate) fn all() -> Vec<ClaimQueue> {
        let queue = |text: &&str| {
            let mut rules = RunRules::default();
            let mut notify = None;
            match *text {
                "gate" => (rules.during_run, rules.retry_with) = (DuringRun::Gate, RetryWith::Newer),
                "interrupt" => {
                    (rules.during_run, rules.retry_with) = (DuringRun::Interrupt, RetryWith::Newer)
                }
                "block" => rules.on_failed = OnFailed::Block,
                "bisect" => rules.on_failed = OnFailed::Bisect,
                "told" => {
                    let on = vec![RunState::Succeeded, RunState::Failed];
                    notify = Some(Arc::new(Notify { queue: name("notices"), on, policy: append() }));
                }
                _ => {}
            }
            let policy = RunPolicy {
                lease: Duration::from_secs(10),
                max_attempts: 3,
                max_running: None,
                rules,
                notify,
            };
            ClaimQueue::new(name(text), Arc::new(policy), 10)
        };
        NAMES.iter().map(queue).collect()
    }
}

use queue::lane;

type Story = fn(&mut Caller);

pub(crate) const STORIES: &[(&str, Story)] = &[
    ("append with made ids", append_made),
    ("append with given ids", append_given),
    ("append what is known", append_known),
    ("append to a full lane", append_full),
    ("append equal contents", append_equal),
    ("append to an idle lane only", append_idle),
    ("append with a delay", append_delayed),
    ("settle succeeded", |c| settle(c, Verdict::Succeeded)),
    ("settle retry", |c| settle(c, Verdict::Retry { after: None })),
    ("settle failed", |c| settle(c, Verdict::Failed)),
    ("settle release", |c| settle(c, Verdict::Release)),
    ("settle interrupted", |c| settle(c, Verdict::Interrupted)),
    ("settle superseded", |c| settle(c, Verdict::Superseded)),
    ("give way to an interrupt", interrupted),
    ("give way at the settle", superseded_at_settle),
    ("hold and settle", hold),
    ("give way at the gate", superseded_at_gate),
    ("interrupted at the gate", interrupted_at_gate),
    ("steps", steps),
    ("steps over two attempts", steps_again),
    ("extend", extend),
    ("claims of several lanes", claim_many),
    ("a run to its last attempt", exhausted),
    ("released to the end", released),
    ("block and resume", block),
    ("bisect", bisect),
    ("carry events", carry),
    ("tell another queue", told),
    ("flush", flush),
    ("pause and resume", pause),
    ("cancel", cancel),
    ("redrive at the head", |c| redrive(c, RedriveTo::Head)),
    ("redrive as new", |c| redrive(c, RedriveTo::New)),
    ("redrive in part", redrive_part),
    ("purge", purge),
    ("erase", erase),
    ("edit", edit),
    ("schedules", schedules),
    ("sweep", sweep),
];

fn payload(text: &str) -> Payload {
    Payload::of(&serde_json::json!({ "text": text }))
}

fn id(text: &str) -> EventId {
    EventId::new(text).expect("an id of ours")
}

fn made(lane: LaneKey, text: &str) -> NewEvent {
    NewEvent::new(lane, NewEventId::Made(id(text)), payload(text), queue::append().into())
}

fn given(lane: LaneKey, text: &str) -> NewEvent {
    NewEvent { id: NewEventId::Given(id(text)), ..made(lane, text) }
}

fn verdict(batch: &Batch, verdict: Verdict) -> SettleRequest {
    let delay = Duration::from_millis(500);
    SettleRequest {
        delay,
        error: Some("drawn".into()),
        ..SettleRequest::new(batch.run_id, batch.token, verdict)
    }
}

/// Sends events `names` to one lane and takes them all.
fn take(c: &mut Caller, queue: &str, names: &[&str]) -> Batch {
    let events: Vec<NewEvent> = names.iter().map(|n| made(lane(queue, "k"), n)).collect();
    c.append(&events).expect("there is room");
    let batch = c.claim_one();
    assert_eq!(batch.events.len(), names.len());
    batch
}

fn append_made(c: &mut Caller) {
    let events = ["a", "b", "c"].map(|n| made(lane("plain", n), n));
    c.append(&events).expect("there is room");
    c.append(&[made(lane("plain", "a"), "d")]).expect("there is room");
    assert_eq!(c.claim(9).len(), 3);
}

fn append_given(c: &mut Caller) {
    let twice = ["a", "b", "a"].map(|n| given(lane("plain", "k"), n));
    let receipts = c.append(&twice).expect("there is room").receipts;
    assert_eq!(receipts[0].seq, receipts[2].seq, "an id that is repeated in one request is one event");
    let batch = c.claim_one();
    assert_eq!(batch.events.len(), 2);
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect("it is held");
}

fn append_known(c: &mut Caller) {
    c.append(&[given(lane("plain", "k"), "a")]).expect("there is room");
    c.append(&[given(lane("plain", "k"), "a")]).expect("a duplicate is no error");
    let other = NewEvent { payload: payload("another"), ..given(lane("plain", "k"), "a") };
    c.append(&[given(lane("plain", "k"), "b"), other]).expect_err("a conflict stores nothing");
    assert_eq!(c.claim_one().events.len(), 1);
}

fn append_full(c: &mut Caller) {
    let policy =
        quell_core::event::AppendPolicy { lane_events: 2, overflow: Overflow::DropOldest, ..queue::append() };
    let policy = std::sync::Arc::new(policy);
    for n in ["a", "b", "c", "d"] {
        let event = NewEvent { policy: policy.clone(), ..made(lane("plain", "k"), n) };
        c.append(&[event]).expect("the oldest makes room");
    }
    let reject = quell_core::event::AppendPolicy { lane_events: 2, ..queue::append() };
    let event = NewEvent { policy: reject.into(), ..made(lane("plain", "k"), "e") };
    c.append(&[event]).expect_err("the lane is full");
    assert_eq!(c.claim_one().events.len(), 2);
}

fn append_equal(c: &mut Caller) {
    let policy = quell_core::event::AppendPolicy { content_dedupe: true, ..queue::append() };
    let policy = std::sync::Arc::new(policy);
    for name in ["a", "b"] {
        let event =
            NewEvent { payload: payload("same"), policy: policy.clone(), ..made(lane("plain", "k"), name) };
        c.append(&[event]).expect("there is room");
    }
    assert_eq!(c.claim_one().events.len(), 1);
}

fn append_idle(c: &mut Caller) {
    let only = |n: &str| NewEvent { only_if_idle: true, ..made(lane("plain", "k"), n) };
    c.append(&[only("a")]).expect("the lane is idle");
    c.append(&[only("b")]).expect_err("the lane has work");
    let batch = c.claim_one();
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect("it is held");
    c.append(&[only("c")]).expect("the lane is idle again");
}

fn append_delayed(c: &mut Caller) {
    let delay = Some(Duration::from_secs(1));
    let later = |n: &str| NewEvent { delay, ..given(lane("plain", "k"), n) };
    c.append(&[later("a"), later("b"), made(lane("plain", "k"), "c")]).expect("there is room");
    c.append(&[later("a")]).expect("a duplicate is no error");
    c.wait(1_000);
    assert_eq!(c.claim_one().events.len(), 3);
}

fn settle(c: &mut Caller, end: Verdict) {
    let batch = take(c, "plain", &["a", "b"]);
    c.append(&[made(lane("plain", "k"), "newer")]).expect("there is room");
    c.settle(&verdict(&batch, end)).expect("it is held");
    c.wait(1_000);
    let next = c.claim_one();
    c.settle(&verdict(&next, Verdict::Succeeded)).expect("it is held");
    c.settle(&verdict(&batch, end)).expect("the same again gets the same answer");
    let other = if end == Verdict::Failed { Verdict::Succeeded } else { Verdict::Failed };
    c.settle(&verdict(&batch, other)).expect_err("something else does not");
}

fn interrupted(c: &mut Caller) {
    let batch = take(c, "interrupt", &["a"]);
    c.append(&[made(lane("interrupt", "k"), "b")]).expect("there is room");
    assert!(c.extend(&batch).expect("it is held").interrupt);
    c.settle(&verdict(&batch, Verdict::Interrupted)).expect("it is held");
    let merged = c.claim_one();
    assert_eq!((merged.events.len(), merged.attempt, merged.revision), (2, 1, 1));
    c.settle(&verdict(&merged, Verdict::Succeeded)).expect("it is held");
}

fn superseded_at_settle(c: &mut Caller) {
    let batch = take(c, "gate", &["a"]);
    c.append(&[made(lane("gate", "k"), "b")]).expect("there is room");
    let request = SettleRequest { if_head: Some(batch.head_seq), ..verdict(&batch, Verdict::Succeeded) };
    assert_eq!(c.settle(&request).expect("it is held").state, RunState::Pending);
    assert_eq!(c.claim_one().events.len(), 2);
}

fn hold(c: &mut Caller) {
    let batch = take(c, "gate", &["a"]);
    assert_eq!(c.hold(&batch, true).expect("it is held").answer, HoldAnswer::Held);
    c.append(&[made(lane("gate", "k"), "b")]).expect("there is room");
    assert_eq!(c.hold(&batch, true).expect("it is held").answer, HoldAnswer::Held);
    c.settle(&verdict(&batch, Verdict::Retry { after: None })).expect("it is held");
    c.wait(1_000);
    let again = c.claim_one();
    assert_eq!(again.events.len(), 1, "a held batch is frozen");
    c.settle(&verdict(&again, Verdict::Succeeded)).expect("it is held");
}

fn superseded_at_gate(c: &mut Caller) {
    let batch = take(c, "gate", &["a"]);
    c.append(&[made(lane("gate", "k"), "b")]).expect("there is room");
    assert_eq!(c.hold(&batch, true).expect("it was held").answer, HoldAnswer::Superseded);
    c.settle(&verdict(&batch, Verdict::Superseded)).expect("the gate has settled it so");
    assert_eq!(c.claim_one().events.len(), 2);
}

fn interrupted_at_gate(c: &mut Caller) {
    let batch = take(c, "interrupt", &["a"]);
    c.append(&[made(lane("interrupt", "k"), "b")]).expect("there is room");
    assert_eq!(c.hold(&batch, false).expect("it was held").answer, HoldAnswer::Interrupted);
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect_err("the attempt is over");
    assert_eq!(c.claim_one().events.len(), 2);
}

fn steps(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    assert_eq!(c.step(&batch, "llm", StepAction::Read), Ok(StepAnswer::New));
    c.step(&batch, "llm", StepAction::Finish(serde_json::json!("first"))).expect("it is held");
    let second = c.step(&batch, "llm", StepAction::Finish(serde_json::json!("second")));
    assert_eq!(second, Ok(StepAnswer::Done { value: serde_json::json!("first"), stored: false }));
    assert_eq!(c.step(&batch, "send", StepAction::Begin), Ok(StepAnswer::Begun));
    c.step(&batch, "send", StepAction::Finish(serde_json::json!(1))).expect("it is held");
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect("it is held");
    c.step(&batch, "late", StepAction::Begin).expect_err("the attempt is over");
}

fn steps_again(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    c.step(&batch, "llm", StepAction::Finish(serde_json::json!("kept"))).expect("it is held");
    c.step(&batch, "send", StepAction::Begin).expect("it is held");
    c.wait(10_000);
    let again = c.claim_one();
    assert_eq!(c.step(&again, "send", StepAction::Begin), Ok(StepAnswer::Unknown));
    let known = StepAnswer::Done { value: serde_json::json!("kept"), stored: false };
    assert_eq!(c.step(&again, "llm", StepAction::Read), Ok(known));
    c.step(&batch, "llm", StepAction::Read).expect_err("the first attempt holds nothing");
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect_err("the first attempt holds nothing");
    c.settle(&verdict(&again, Verdict::Succeeded)).expect("it is held");
}

fn extend(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    c.wait(6_000);
    c.extend(&batch).expect("it is held");
    c.wait(6_000);
    assert!(c.claim(1).is_empty(), "the lease was extended");
    c.wait(6_000);
    c.extend(&batch).expect("expired, but nobody took it");
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect("it is held");
    c.extend(&batch).expect_err("it has ended");
}

fn claim_many(c: &mut Caller) {
    for key in ["a", "b", "c"] {
        c.append(&[made(lane("plain", key), key)]).expect("there is room");
    }
    let two = c.claim(2);
    let one = c.claim(2);
    assert_eq!((two.len(), one.len()), (2, 1));
    for batch in two.iter().chain(&one) {
        c.settle(&verdict(batch, Verdict::Succeeded)).expect("it is held");
    }
}

fn exhausted(c: &mut Caller) {
    c.append(&[made(lane("plain", "k"), "a")]).expect("there is room");
    for attempt in 1..=3 {
        let batch = c.claim_one();
        assert_eq!(batch.attempt, attempt);
        c.settle(&verdict(&batch, Verdict::Retry { after: None })).expect("it is held");
        c.wait(1_000);
    }
    assert!(c.claim(1).is_empty(), "it is dead");
}

fn released(c: &mut Caller) {
    c.append(&[made(lane("plain", "k"), "a")]).expect("there is room");
    for _ in 0..3 {
        let batch = c.claim_one();
        assert_eq!(batch.attempt, 1);
        c.settle(&verdict(&batch, Verdict::Release)).expect("it is held");
        c.wait(1_000);
    }
}

fn block(c: &mut Caller) {
    let batch = take(c, "block", &["a"]);
    c.append(&[made(lane("block", "k"), "b")]).expect("there is room");
    c.settle(&verdict(&batch, Verdict::Failed)).expect("it is held");
    assert!(c.claim(1).is_empty(), "the lane waits for an operator");
    c.control(ControlAction::ResumeLane(lane("block", "k"))).expect("there is such a lane");
    let next = c.claim_one();
    c.settle(&verdict(&next, Verdict::Succeeded)).expect("it is held");
}

fn bisect(c: &mut Caller) {
    assert_eq!(queue::all()[4].policy.rules.on_failed, OnFailed::Bisect);
    let whole = take(c, "bisect", &["a", "b", "c"]);
    c.settle(&verdict(&whole, Verdict::Failed)).expect("it is held");
    let left = c.claim_one();
    assert_eq!(left.events.len(), 2);
    c.settle(&verdict(&left, Verdict::Failed)).expect("it is held");
    for end in [Verdict::Succeeded, Verdict::Failed, Verdict::Succeeded] {
        let part = c.claim_one();
        assert_eq!(part.events.len(), 1);
        c.settle(&verdict(&part, end)).expect("it is held");
    }
}

fn carry(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    let events = vec![
        made(lane("plain", "other"), "follow"),
        NewEvent { delay: Some(Duration::from_secs(1)), ..made(lane("plain", "other"), "later") },
    ];
    c.settle(&SettleRequest { events, ..verdict(&batch, Verdict::Succeeded) }).expect("it is held");
    assert_eq!(c.claim_one().events.len(), 1);
    c.wait(11_000);
    assert_eq!(c.claim_one().events.len(), 1, "the lost attempt goes first");
}

fn told(c: &mut Caller) {
    for (name, end) in [("a", Verdict::Succeeded), ("b", Verdict::Failed)] {
        let batch = take(c, "told", &[name]);
        c.settle(&verdict(&batch, end)).expect("it is held");
        let notice = c.claim_one();
        assert_eq!(notice.lane.queue, queue::name("notices"));
        c.settle(&verdict(&notice, Verdict::Succeeded)).expect("it is held");
    }
    assert!(c.claim(1).is_empty(), "notices are never told of");
}

fn flush(c: &mut Caller) {
    let window = Some(WindowPolicy::Fixed { wait: Duration::from_secs(60) });
    c.append(&[NewEvent { window, ..made(lane("plain", "k"), "a") }]).expect("there is room");
    assert!(c.claim(1).is_empty());
    c.control(ControlAction::Flush(lane("plain", "k"))).expect("there is such a lane");
    let batch = c.claim_one();
    c.settle(&verdict(&batch, Verdict::Retry { after: None })).expect("it is held");
    c.control(ControlAction::Flush(lane("plain", "k"))).expect("there is such a lane");
    assert_eq!(c.claim_one().attempt, 2);
}

fn pause(c: &mut Caller) {
    let scope = || QueueScope { queue: queue::name("plain"), tenant: None };
    c.append(&[made(lane("plain", "k"), "a")]).expect("there is room");
    c.control(ControlAction::PauseLane(lane("plain", "k"))).expect("it can be paused");
    c.control(ControlAction::PauseQueue(scope())).expect("it can be paused");
    assert!(c.claim(1).is_empty());
    c.control(ControlAction::ResumeLane(lane("plain", "k"))).expect("it can be resumed");
    assert!(c.claim(1).is_empty(), "a resume lifts only its own pause");
    c.control(ControlAction::ResumeQueue(scope())).expect("it can be resumed");
    assert_eq!(c.claim(1).len(), 1);
}

/// A cancellation that may have to be repeated names its run; otherwise the repetition would end the next one.
fn cancel(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    c.append(&[made(lane("plain", "k"), "b")]).expect("there is room");
    let cancel = |run| ControlAction::Cancel { lane: lane("plain", "k"), run: Some(run) };
    c.control(cancel(batch.run_id)).expect("there is such a run");
    assert!(c.extend(&batch).expect("it is held").cancel);
    assert_eq!(c.settle(&verdict(&batch, Verdict::Release)).expect("it is held").state, RunState::Cancelled);
    let next = c.claim_one();
    c.settle(&verdict(&next, Verdict::Retry { after: None })).expect("it is held");
    c.control(cancel(next.run_id)).expect("there is such a run");
    c.wait(1_000);
    assert!(c.claim(1).is_empty());
}

fn dead(c: &mut Caller, names: &[&str]) -> Batch {
    let batch = take(c, "plain", names);
    c.settle(&verdict(&batch, Verdict::Failed)).expect("it is held");
    batch
}

fn redriven(batch: &Batch, events: &[&str], to: RedriveTo) -> ControlAction {
    let events = events.iter().map(|n| id(n)).collect();
    let policy = queue::append().into();
    ControlAction::Redrive(Redrive { run: batch.run_id, events, edits: Vec::new(), to, fresh: false, policy })
}

fn redrive(c: &mut Caller, to: RedriveTo) {
    let batch = dead(c, &["a", "b"]);
    c.append(&[made(lane("plain", "k"), "c")]).expect("there is room");
    c.control(redriven(&batch, &[], to)).expect("there is such a run");
    let again = c.claim_one();
    c.settle(&verdict(&again, Verdict::Succeeded)).expect("it is held");
    c.claim(1);
}

fn redrive_part(c: &mut Caller) {
    let batch = dead(c, &["a", "b", "c"]);
    c.control(redriven(&batch, &["b"], RedriveTo::Head)).expect("there is such a run");
    assert_eq!(c.claim_one().events.len(), 1);
    c.control(redriven(&batch, &["a"], RedriveTo::New)).expect("there is such a run");
}

fn purge(c: &mut Caller) {
    dead(c, &["a"]);
    let window = Some(WindowPolicy::Fixed { wait: Duration::from_secs(60) });
    c.append(&[NewEvent { window, ..made(lane("plain", "k"), "b") }]).expect("there is room");
    let delay = Some(Duration::from_secs(60));
    c.append(&[NewEvent { delay, ..given(lane("plain", "k"), "c") }]).expect("there is room");
    for what in [PurgeWhat::Dead, PurgeWhat::Buffered, PurgeWhat::Delayed] {
        let (queue, key) = (queue::name("plain"), Some(lane("plain", "k").key));
        let purge = Purge { queue, tenant: None, key, what, dry_run: false };
        let purged = c.control(ControlAction::Purge(purge)).expect("it can be purged");
        assert!(!purged.more);
    }
}

fn erase(c: &mut Caller) {
    dead(c, &["a", "b"]);
    c.append(&[made(lane("plain", "other"), "c")]).expect("there is room");
    let one = ControlAction::EraseEvent { lane: lane("plain", "k"), id: id("a") };
    c.control(one).expect("it can be erased");
    c.control(ControlAction::EraseLane(lane("plain", "other"))).expect("it can be erased");
    c.control(ControlAction::EraseLane(lane("plain", "k"))).expect("it can be erased");
}

fn edit(c: &mut Caller) {
    let window = Some(WindowPolicy::Fixed { wait: Duration::from_secs(60) });
    let events = ["a", "b"].map(|n| NewEvent { window, ..given(lane("plain", "k"), n) });
    c.append(&events).expect("there is room");
    let edit = ControlAction::EditEvent { lane: lane("plain", "k"), id: id("a"), payload: payload("edited") };
    c.control(edit).expect("it is buffered");
    c.append(&[given(lane("plain", "k"), "a")]).expect("what was sent is still known");
    c.wait(60_000);
    assert_eq!(c.claim_one().events.len(), 2);
}

fn schedules(c: &mut Caller) {
    let schedule = quell_core::schedule::Schedule {
        tenant: quell_core::event::Tenant::none(),
        name: queue::name("every-minute"),
        cron: "* * * * *".parse().expect("a rhythm of ours"),
        zone: quell_core::cron::Zone::utc(),
        queue: queue::name("plain"),
        key: lane("plain", "k").key,
        payload: payload("tick"),
        policy: queue::append().into(),
    };
    c.control(ControlAction::PutSchedule(schedule)).expect("it can be put");
    c.wait(60_000);
    let batch = c.claim_one();
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect("it is held");
    let tenant = quell_core::event::Tenant::none();
    c.control(ControlAction::RemoveSchedule { tenant, name: "every-minute".into() })
        .expect("it can be removed");
    c.wait(60_000);
    assert!(c.claim(1).is_empty());
}

fn sweep(c: &mut Caller) {
    let batch = take(c, "plain", &["a"]);
    c.wait(10_000);
    c.sweep(None).expect("it can be swept");
    c.settle(&verdict(&batch, Verdict::Succeeded)).expect_err("it was taken back");
    let again = c.claim_one();
    c.settle(&verdict(&again, Verdict::Succeeded)).expect("it is held");
    c.wait(7_200_000);
    c.sweep(Some(Duration::from_secs(3_600))).expect("it can be swept");
    c.sweep(Some(Duration::from_secs(3_600))).expect("it can be swept");
}
