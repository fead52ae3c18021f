//! Promises about what is kept of each attempt: what it asked, what it was answered and why it did not succeed. Kept with
//! the run and not with the trail, so that it can be erased, and bounded however often a run is tried.

use quell_core::attempt::{AttemptReport, ReportedAttempt};
use quell_core::batch::{Batch, RunId};
use quell_core::limits;
use quell_core::outcome::Verdict;
use quell_core::store::{SettleRequest, StepAction, StepAnswer, Store};
use serde_json::json;

use crate::World;
use crate::builders::{
    FAILED, RELEASE, RETRY, SUCCEEDED, append_one, claim_by, claim_one, claim_one_as, erase_event,
    erase_lane, event, forget, lane, policy, redrive, secs, settle, settle_request, step, sweep, worker,
};
use crate::reads::{assert_moment, health, run_detail};

fn answered(status: u16, text: &str) -> AttemptReport {
    AttemptReport {
        request: Some("POST https://example.org/hook".to_owned()),
        status: Some(status),
        response: Some(text.to_owned()),
        ..AttemptReport::default()
    }
}

fn telling(
    batch: &Batch,
    verdict: Verdict,
    error: Option<&str>,
    report: Option<AttemptReport>,
) -> SettleRequest {
    let (error, report) = (error.map(str::to_owned), report.map(Box::new));
    SettleRequest { error, report, ..settle_request(batch, verdict) }
}

async fn told(store: &dyn Store, run: RunId) -> Vec<ReportedAttempt> {
    run_detail(store, run).await.map_or_else(Vec::new, |detail| detail.reports)
}

fn facts(reports: &[ReportedAttempt]) -> Vec<(u64, Option<&str>, Option<u16>)> {
    reports.iter().map(|r| (r.token, r.error.as_deref(), r.report.status)).collect()
}

pub async fn every_attempt_is_told_with_its_own_error_and_answer_also_after_a_restart(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    let request = telling(&first, RETRY, Some("the service answered 503"), Some(answered(503, "busy\u{e9}")));
    store.settle(request).await.expect("it is held");
    let now = health(&*store).await.now;
    let waiting = told(&*store, first.run_id).await;
    assert_eq!(facts(&waiting), [(first.token, Some("the service answered 503"), Some(503))]);
    assert_eq!(waiting[0].report, answered(503, "busy\u{e9}"));
    assert_moment(world, waiting[0].at, now, "the end of the attempt");

    let second = claim_one(&*store).await;
    let ended = AttemptReport { exit_code: Some(3), stderr: Some("boom".into()), ..AttemptReport::default() };
    store.settle(telling(&second, RELEASE, Some("not now"), Some(ended.clone()))).await.expect("it is held");
    let third = claim_one(&*store).await;
    store.settle(telling(&third, SUCCEEDED, None, Some(answered(200, "fine")))).await.expect("it is held");
    drop(store);
    let store = world.reopen().await;
    let reports = told(&*store, first.run_id).await;
    let expected = [
        (first.token, Some("the service answered 503"), Some(503)),
        (second.token, Some("not now"), None),
        (third.token, None, Some(200)),
    ];
    assert_eq!(facts(&reports), expected);
    assert_eq!(reports[1].report, ended);
}

pub async fn an_error_alone_is_kept_and_a_plain_success_leaves_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let first = claim_one(&*store).await;
    store.settle(telling(&first, RETRY, Some("no"), None)).await.expect("it is held");
    let second = claim_one(&*store).await;
    settle(&*store, &second, SUCCEEDED).await;
    assert_eq!(facts(&told(&*store, first.run_id).await), [(first.token, Some("no"), None)]);
}

/// The first word counts, as with the verdict.
pub async fn a_repeated_settle_leaves_the_report_as_it_is(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    store.settle(telling(&batch, FAILED, Some("one"), None)).await.expect("it is held");
    let again = telling(&batch, FAILED, Some("two"), Some(answered(500, "two")));
    assert!(store.settle(again).await.expect("the same answer").repeated);
    assert_eq!(facts(&told(&*store, batch.run_id).await), [(batch.token, Some("one"), None)]);
}

/// A worker that lost its lease has nothing to tell: the attempt that is told of is another one.
pub async fn who_lost_the_lease_tells_nothing(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let lost = claim_one_as(&*store, &worker("a")).await;
    world.advance(secs(61)).await;
    sweep(&*store).await;
    let held = claim_one_as(&*store, &worker("b")).await;
    assert!(store.settle(telling(&lost, FAILED, Some("late"), None)).await.is_err());
    store.settle(telling(&held, FAILED, Some("mine"), None)).await.expect("it is held");
    assert_eq!(facts(&told(&*store, held.run_id).await), [(held.token, Some("mine"), None)]);
}

pub async fn of_a_run_that_is_tried_for_ever_the_latest_attempts_are_told(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let patient = quell_core::store::RunPolicy { max_attempts: limits::ATTEMPTS_MAX, ..policy() };
    let mut tokens = Vec::new();
    let mut run = None;
    for n in 0..limits::REPORTS_MAX + 3 {
        let batch = claim_by(&*store, &patient).await;
        store.settle(telling(&batch, RETRY, Some(&format!("try {n}")), None)).await.expect("it is held");
        tokens.push(batch.token);
        run = Some(batch.run_id);
    }
    let reports = told(&*store, run.expect("it was tried")).await;
    let kept: Vec<u64> = reports.iter().map(|report| report.token).collect();
    assert_eq!(kept, tokens[3..], "in their order, without the oldest");
    assert_eq!(reports[0].error.as_deref(), Some("try 3"));
}

pub async fn a_report_is_no_step_and_no_step_is_a_report(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    step(&*store, &batch, "0", StepAction::Finish(json!("mine"))).await;
    store.settle(telling(&batch, RETRY, Some("no"), None)).await.expect("it is held");
    let again = claim_one(&*store).await;
    let known = step(&*store, &again, "0", StepAction::Read).await;
    assert_eq!(known, StepAnswer::Done { value: json!("mine"), stored: false });
    assert_eq!(step(&*store, &again, "1", StepAction::Read).await, StepAnswer::New);
    let detail = run_detail(&*store, batch.run_id).await.expect("it runs");
    assert_eq!((detail.steps.len(), detail.reports.len()), (1, 1));
}

/// What was answered may be about a person: it goes with the lane, with the event and with the retention.
pub async fn reports_are_erased_with_their_lane_or_event_and_forgotten_with_their_run(world: &dyn World) {
    let store = world.store();
    let mut runs = Vec::new();
    for key in ["k1", "k2", "k3"] {
        append_one(&*store, event("chat", key).id(key)).await;
        let batch = claim_one(&*store).await;
        let report = Some(answered(200, "about somebody"));
        store.settle(telling(&batch, SUCCEEDED, None, report)).await.expect("it is held");
        assert_eq!(told(&*store, batch.run_id).await.len(), 1);
        runs.push(batch.run_id);
    }
    erase_lane(&*store, &lane("chat", "k1")).await;
    erase_event(&*store, &lane("chat", "k2"), "k2").await;
    assert!(told(&*store, runs[0]).await.is_empty(), "a lane's");
    assert!(told(&*store, runs[1]).await.is_empty(), "an event's");
    assert_eq!(told(&*store, runs[2]).await.len(), 1, "nobody else's");
    world.advance(secs(100)).await;
    forget(&*store, secs(50)).await;
    assert!(told(&*store, runs[2]).await.is_empty(), "the retention's");
}

pub async fn a_redriven_run_begins_without_reports_and_the_old_one_keeps_its_own(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    step(&*store, &batch, "llm", StepAction::Finish(json!("paid"))).await;
    store.settle(telling(&batch, FAILED, Some("no"), Some(answered(400, "no")))).await.expect("it is held");
    redrive(&*store, batch.run_id).await;
    let again = claim_one(&*store).await;
    let detail = run_detail(&*store, again.run_id).await.expect("it runs");
    assert_eq!((detail.steps.len(), detail.reports.len()), (1, 0));
    assert_eq!(told(&*store, batch.run_id).await.len(), 1);
}

pub async fn a_report_is_cut_and_its_run_ends_all_the_same(world: &dyn World) {
    let store = world.store();
    append_one(&*store, event("chat", "k1")).await;
    let batch = claim_one(&*store).await;
    let long = format!("begin\0{}end", "\u{e9}".repeat(9_000));
    let report = AttemptReport {
        request: Some(long.clone()),
        response: Some(long.clone()),
        stderr: Some(long.clone()),
        ..AttemptReport::default()
    };
    store.settle(telling(&batch, SUCCEEDED, None, Some(report))).await.expect("it is held");
    let reports = told(&*store, batch.run_id).await;
    let AttemptReport { request, response, stderr, .. } = &reports[0].report;
    let lengths = [request, response, stderr].map(|text| text.as_ref().map_or(0, String::len));
    assert!(lengths[0] > 100 && lengths[0] <= limits::REPORT_REQUEST_BYTES_MAX, "{lengths:?}");
    assert!(lengths[1..].iter().all(|n| *n > 1_000 && *n <= limits::REPORT_TEXT_BYTES_MAX), "{lengths:?}");
    assert!(stderr.as_deref().is_some_and(|text| text.ends_with("end")), "of stderr the end");
    assert!(response.as_deref().is_some_and(|text| text.starts_with("begin\u{fffd}")), "the beginning");
}
