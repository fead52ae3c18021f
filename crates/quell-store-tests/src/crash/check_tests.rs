//! The checker of the kill loop must be able to fail: an honest story passes, and each lie in it is found.

use std::sync::Arc;

use quell_core::clock::{ManualClock, Timestamp};
use quell_core::memory::MemoryStore;
use quell_core::store::Store;
use serde_json::{Value, json};

use super::{Report, check};
use crate::builders::{RETRY, SUCCEEDED, append_one, claim_one, event, seqs, settle};
use crate::crash::log_path;

/// One event that was retried once and then succeeded, and the lines that honest children would have written.
struct Story {
    store: MemoryStore,
    lines: Vec<Value>,
}

impl Story {
    async fn honest() -> Story {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
        let store = MemoryStore::new(clock);
        let receipt = append_one(&store, event("torture", "lane-0").id("a")).await;
        let mut lines = vec![
            json!({ "sending": [["lane-0", "a"]] }),
            json!({ "key": "lane-0", "acknowledged": "a", "seq": receipt.seq, "duplicate": false }),
        ];
        for verdict in [RETRY, SUCCEEDED] {
            let batch = claim_one(&store).await;
            let events = [json!([seqs(&batch)[0], "a"])];
            lines.push(json!({
                "begun": batch.run_id,
                "key": "lane-0",
                "token": batch.token,
                "attempt": batch.attempt,
                "events": events,
            }));
            let state = settle(&store, &batch, verdict).await.state;
            lines.push(json!({ "settled": batch.run_id, "token": batch.token, "state": state }));
        }
        Story { store, lines }
    }

    /// Writes the log and has it checked.
    async fn checked(self) -> Report {
        let folder = tempfile::tempdir().expect("a folder for the log");
        let text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(log_path(folder.path(), "work", 1), text).expect("the log can be written");
        check(folder.path(), &self.store as &dyn Store, Vec::new()).await
    }
}

#[tokio::test]
async fn an_honest_story_passes() {
    let report = Story::honest().await.checked().await;
    let expected = Report { acknowledged: 1, stored: 1, delivered: 2, redelivered: 1, ..Report::default() };
    assert_eq!(report, expected);
}

#[tokio::test]
#[should_panic(expected = "was acknowledged and is lost")]
async fn an_acknowledged_event_that_is_not_there_is_found() {
    let mut story = Story::honest().await;
    story.lines.push(json!({ "key": "lane-0", "acknowledged": "b", "seq": 7, "duplicate": false }));
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "a duplicate gets the first event's number")]
async fn a_duplicate_with_another_number_is_found() {
    let mut story = Story::honest().await;
    story.lines.push(json!({ "key": "lane-0", "acknowledged": "a", "seq": 999, "duplicate": true }));
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "is stored but nobody sent it")]
async fn an_event_that_nobody_sent_is_found() {
    let mut story = Story::honest().await;
    story.lines.remove(0);
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "was handed out off the record")]
async fn a_delivery_without_a_claim_on_record_is_found() {
    let mut story = Story::honest().await;
    let mut line = story.lines[2].clone();
    line["token"] = json!(999);
    story.lines.push(line);
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "a batch is frozen")]
async fn a_batch_that_changed_between_two_attempts_is_found() {
    let mut story = Story::honest().await;
    let seq = story.lines[4]["events"][0][0].as_u64().expect("a number");
    story.lines[4]["events"] = json!([[seq, "a"], [seq + 1, "b"]]);
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "answered failed")]
async fn a_settle_that_the_record_tells_otherwise_is_found() {
    let mut story = Story::honest().await;
    story.lines[5]["state"] = json!("failed");
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "its lease was not taken back")]
async fn a_refusal_without_a_reason_is_found() {
    let mut story = Story::honest().await;
    let settled = story.lines.remove(5);
    story.lines.push(json!({ "lost": settled["settled"], "token": settled["token"] }));
    story.checked().await;
}

#[tokio::test]
#[should_panic(expected = "every run has ended")]
async fn a_run_that_was_left_behind_is_found() {
    let story = Story::honest().await;
    append_one(&story.store, event("torture", "lane-0").id("b")).await;
    story.checked().await;
}
