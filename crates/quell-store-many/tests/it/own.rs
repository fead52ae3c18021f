//! What only several databases can get wrong: parts of a request, events on their way, a database that is away, wrong lists.

use std::collections::BTreeSet;
use std::sync::Arc;

use quell_core::copy::Portable;
use quell_core::error::ErrorKind;
use quell_core::event::NewEvent;
use quell_core::inspect::{AuditFilter, Inspect, Inspected};
use quell_core::memory::MemoryStore;
use quell_core::store::{AppendRequest, ControlAction, SettleRequest, Store};
use quell_store_many::limits::{RANGE_BITS, RANGE_FIRST};
use quell_store_many::{ManyStore, RELAY, Whole, check_alone};
use quell_store_tests::World;
use quell_store_tests::builders::{
    SUCCEEDED, append, append_one, claim_all, claim_none, claim_one, event, ids, lane, schedule, secs,
    settle, settle_request, sweep, try_append, try_control, whole,
};
use quell_store_tests::reads::{totals, trail, verify};

use crate::memory::{Pair, opened};

/// Keys of one database and of the other, as many of each as are asked for.
fn keys_of(store: &ManyStore, many: usize) -> [Vec<String>; 2] {
    let mut keys = [Vec::new(), Vec::new()];
    for key in (0..).map(|n| format!("k{n}")) {
        let home = store.map().home(&lane("chat", &key));
        if keys[home].len() < many {
            keys[home].push(key);
        }
        if keys.iter().all(|keys| keys.len() == many) {
            break;
        }
    }
    keys
}

async fn open(members: &[Arc<MemoryStore>], word: &str) -> Result<Arc<ManyStore>, String> {
    let members = members.iter().map(|member| member.clone() as Arc<dyn Whole>).collect();
    ManyStore::open(members, word).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_request_over_both_databases_is_answered_in_its_order_and_each_key_is_in_its_own() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 3);
    let mixed: Vec<&String> = here.iter().zip(&there).flat_map(|(a, b)| [a, b]).collect();
    let receipts = append(&*store, mixed.iter().map(|key| event("chat", key).id(key))).await;
    let told: Vec<&str> = receipts.iter().map(|receipt| receipt.event_id.as_str()).collect();
    assert_eq!(told, mixed);
    for (database, keys) in [here, there].iter().enumerate() {
        for key in keys {
            let found = pair.members[database].inspect(Inspect::Lane(lane("chat", key))).await.unwrap();
            assert!(matches!(found, Inspected::Lane(Some(_))), "{key} is in database {database}");
            let found = pair.members[1 - database].inspect(Inspect::Lane(lane("chat", key))).await.unwrap();
            assert!(matches!(found, Inspected::Lane(None)), "{key} is in one database only");
        }
    }
    let batches = claim_all(&*store).await;
    assert_eq!(batches.len(), 6);
    let ranges: BTreeSet<u64> = batches.iter().map(|batch| batch.run_id.lane >> RANGE_BITS).collect();
    assert_eq!(
        ranges,
        BTreeSet::from([RANGE_FIRST, RANGE_FIRST + 1]),
        "no two databases give the same number"
    );
    for batch in &batches {
        settle(&*store, batch, SUCCEEDED).await;
    }
    assert_eq!(totals(&*store, "chat").await.succeeded, 6);
}

#[tokio::test]
async fn a_part_that_cannot_be_stored_is_told_and_a_resend_completes_the_request() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    let both = || [event("chat", &here[0]).id("a"), event("chat", &there[0]).id("b")];
    pair.members[0].seal(Some("a test")).await.unwrap();
    let error = try_append(&*store, both()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "the first part is refused: nothing is stored, {error}");
    pair.members[0].seal(None).await.unwrap();
    pair.members[1].seal(Some("a test")).await.unwrap();
    let error = try_append(&*store, both()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown, "the first part is stored: {error}");
    pair.members[1].seal(None).await.unwrap();
    let events: Vec<NewEvent> = both().into_iter().map(|event| event.build()).collect();
    let appended = store.append(AppendRequest { events, repeat: true }).await.unwrap();
    let duplicates: Vec<bool> = appended.receipts.iter().map(|receipt| receipt.duplicate).collect();
    assert_eq!(duplicates, [true, false]);
    assert_eq!(totals(&*store, "chat").await.accepted, 2);
}

#[tokio::test]
async fn what_a_settle_carries_to_another_database_arrives_once_though_that_is_away() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    append_one(&*store, event("chat", &here[0]).id("a")).await;
    let batch = claim_one(&*store).await;
    let next = event("next", &there[0]).payload(serde_json::json!({ "go": "on" })).priority(7).build();
    let request = SettleRequest { events: vec![next], ..settle_request(&batch, SUCCEEDED) };
    pair.members[1].seal(Some("a test")).await.unwrap();
    assert!(!store.settle(request.clone()).await.unwrap().repeated);
    assert_eq!(totals(&*store, "next").await.accepted, 0);
    assert_eq!(totals(&*store, RELAY).await.in_flight, 1, "it waits where the settle was stored");
    // The process that settled is gone; another one finds it.
    drop(store);
    let store = opened(&pair.members).await;
    pair.members[1].seal(None).await.unwrap();
    pair.clock.advance(secs(120));
    sweep(&*store).await;
    assert!(store.settle(request.clone()).await.unwrap().repeated);
    let arrived = claim_one(&*store).await;
    assert_eq!(
        (arrived.lane.clone(), ids(&arrived)),
        (lane("next", &there[0]), vec![format!("{}/1", batch.run_id).as_str()])
    );
    assert_eq!(arrived.events[0].payload.as_str(), r#"{"go":"on"}"#);
    settle(&*store, &arrived, SUCCEEDED).await;
    sweep(&*store).await;
    assert!(store.settle(request).await.unwrap().repeated);
    claim_none(&*store).await;
    assert_eq!((totals(&*store, "next").await.accepted, totals(&*store, RELAY).await.succeeded), (1, 1));
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
}

/// Its id is known where it goes to, so what was relayed and not settled is relayed again without harm.
#[tokio::test]
async fn a_process_that_dies_between_relaying_and_settling_doubles_nothing() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    append_one(&*store, event("chat", &here[0]).id("a")).await;
    let batch = claim_one(&*store).await;
    let next = event("next", &there[0]).payload(serde_json::json!("same"));
    pair.members[1].seal(Some("a test")).await.unwrap();
    let request = SettleRequest { events: vec![next.clone().build()], ..settle_request(&batch, SUCCEEDED) };
    store.settle(request).await.unwrap();
    pair.members[1].seal(None).await.unwrap();
    // Somebody has stored it and died: the wrapping is still there.
    let id = format!("{}/1", batch.run_id);
    append_one(&*pair.members[1], next.id(&id).payload(serde_json::json!("same"))).await;
    pair.clock.advance(secs(120));
    sweep(&*store).await;
    let relayed = totals(&*store, RELAY).await.succeeded;
    assert_eq!((totals(&*store, "next").await.accepted, relayed), (1, 1));
}

#[tokio::test]
async fn a_refused_settle_carries_nothing_anywhere() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    append_one(&*store, event("chat", &here[0])).await;
    let batch = claim_one(&*store).await;
    let events = vec![event("next", &there[0]).build()];
    let stale = SettleRequest { token: batch.token + 1, events, ..settle_request(&batch, SUCCEEDED) };
    assert_eq!(store.settle(stale).await.unwrap_err().kind, ErrorKind::LostLease);
    sweep(&*store).await;
    assert_eq!((totals(&*store, "next").await.accepted, totals(&*store, RELAY).await.accepted), (0, 0));
}

#[tokio::test]
async fn lanes_of_the_other_database_go_on_while_one_is_away() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 2);
    pair.members[0].seal(Some("a test")).await.unwrap();
    let error = try_append(&*store, [event("chat", &here[0])]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    for key in &there {
        append_one(&*store, event("chat", key)).await;
        for _ in 0..4 {
            store.inspect(Inspect::Health).await.unwrap();
        }
        let batch = claim_one(&*store).await;
        assert_eq!(batch.lane, lane("chat", key));
        settle(&*store, &batch, SUCCEEDED).await;
        let swept = sweep(&*store).await;
        assert!(swept.reclaimed.is_empty());
    }
    pair.members[0].seal(None).await.unwrap();
    append_one(&*store, event("chat", &here[1])).await;
    let mut found = Vec::new();
    for _ in 0..20 {
        found.extend(claim_all(&*store).await);
    }
    assert_eq!(found.len(), 1, "a database that is back is asked again");
}

/// *Unavailable* means that nothing is done; what one database has done is something.
#[tokio::test]
async fn a_hand_on_all_databases_that_one_refuses_is_not_said_to_be_undone() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    append(&*store, [event("chat", &here[0]), event("chat", &there[0])]).await;
    let pause = || try_control(&*store, ControlAction::PauseQueue(whole("chat")));
    for away in [0, 1] {
        pair.members[away].seal(Some("a test")).await.unwrap();
        assert_eq!(pause().await.unwrap_err().kind, ErrorKind::Unknown, "the other one has paused");
        assert_eq!(
            pause().await.unwrap_err().kind,
            ErrorKind::Unavailable,
            "nothing is left to be done there"
        );
        pair.members[away].seal(None).await.unwrap();
        assert!(pause().await.unwrap().changed, "repeated it is complete");
        claim_none(&*store).await;
        assert!(try_control(&*store, ControlAction::ResumeQueue(whole("chat"))).await.unwrap().changed);
    }
    for member in &pair.members {
        member.seal(Some("a test")).await.unwrap();
    }
    assert_eq!(pause().await.unwrap_err().kind, ErrorKind::Unavailable, "nobody has done anything");
}

/// A schedule whose key moves to another database is removed before it is put.
#[tokio::test]
async fn a_schedule_that_is_removed_and_cannot_be_put_is_not_said_to_be_as_before() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 1);
    let put = |key: &str| {
        let nightly = schedule("nightly", "0 3 * * *", &lane("chat", key));
        try_control(&*store, ControlAction::PutSchedule(nightly))
    };
    assert!(put(&here[0]).await.unwrap().changed);
    pair.members[1].seal(Some("a test")).await.unwrap();
    assert_eq!(put(&there[0]).await.unwrap_err().kind, ErrorKind::Unknown);
    pair.members[1].seal(None).await.unwrap();
    assert!(put(&there[0]).await.unwrap().changed);
}

#[tokio::test]
async fn a_list_that_is_not_the_store_is_refused_with_what_is_missing() {
    let pair = Pair::fresh(3).await;
    let (all, clock) = (&pair.members, pair.clock.clone());
    let refusal = async |list: &[Arc<MemoryStore>]| open(list, "another").await.err().expect("it is refused");
    let text = refusal(&all[..2]).await;
    assert!(text.contains("names 2 of the 3 databases of this store; missing: this process"), "{text}");
    let text = refusal(&[all[0].clone(), all[1].clone(), all[1].clone()]).await;
    assert!(text.contains("the same database, named twice"), "{text}");
    let stranger = Arc::new(MemoryStore::new(clock.clone()));
    let text = refusal(&[all[0].clone(), all[1].clone(), all[2].clone(), stranger.clone()]).await;
    assert!(text.contains("databases are added with `quell store move`"), "{text}");
    let text = check_alone(&*all[1]).await.unwrap_err().detail;
    assert!(text.contains("names 1 of the 3 databases"), "{text}");
    check_alone(&*stranger).await.unwrap();
    append_one(&*stranger, event("chat", "k1")).await;
    let text = refusal(&[stranger, Arc::new(MemoryStore::new(clock))]).await;
    assert!(
        text.contains("cannot become a part of a store") && text.contains("`quell store move`"),
        "{text}"
    );
    let order: Vec<_> = [2, 0, 1].map(|n: usize| all[n].clone()).into();
    open(&order, "any").await.expect("the order of the list does not matter");
}

#[tokio::test]
async fn two_processes_that_start_at_once_make_one_store() {
    let clock = Pair::fresh(2).await.clock;
    let members: Vec<_> = (0..2).map(|_| Arc::new(MemoryStore::new(clock.clone()))).collect();
    let (one, other) = tokio::join!(open(&members, "one"), open(&members, "other"));
    assert!(one.is_ok() || other.is_ok(), "one of them makes it");
    let (one, other) = (open(&members, "one").await.unwrap(), open(&members, "other").await.unwrap());
    assert_eq!(one.map(), other.map());
}

#[tokio::test]
async fn the_trail_is_listed_by_time_over_all_databases_and_a_hand_on_a_queue_once() {
    let pair = Pair::fresh(2).await;
    let store = opened(&pair.members).await;
    let [here, there] = keys_of(&store, 3);
    for key in here.iter().zip(&there).flat_map(|(a, b)| [a, b]) {
        append_one(&*store, event("chat", key)).await;
        let batch = claim_one(&*store).await;
        settle(&*store, &batch, SUCCEEDED).await;
        pair.advance(secs(10)).await;
    }
    for limit in [1, 2, 5, 100] {
        let records = trail(&*store, AuditFilter { limit, ..AuditFilter::default() }).await;
        assert_eq!(records.len(), 12, "pages of {limit}");
        assert!(
            records.windows(2).all(|two| two[0].at <= two[1].at),
            "pages of {limit}: oldest first, as read here"
        );
    }
}
