//! What only the memory store has: going back to a backup.

use std::pin::pin;
use std::task::Context;

use super::*;
use crate::clock::ManualClock;
use crate::event::{AppendPolicy, EventId, Key, LaneKey, NewEvent, NewEventId, Payload, QueueName};

fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store answers at once"),
    }
}

fn append(store: &MemoryStore, id: &str) -> u64 {
    let lane = LaneKey::new(QueueName::new("q").unwrap(), Key::new("k").unwrap());
    let id = NewEventId::Made(EventId::new(id).unwrap());
    let payload = Payload::of(&serde_json::json!(1));
    let event = NewEvent::new(lane, id, payload, AppendPolicy::default().into());
    let request = AppendRequest { events: vec![event], repeat: false };
    ready(store.append(request)).unwrap().receipts[0].seq.unwrap()
}

/// Rule 32: after a restore numbers go on rising, also when the same backup is restored a second time.
#[test]
fn no_number_is_told_twice_when_one_backup_is_restored_twice() {
    let store = MemoryStore::new(Arc::new(ManualClock::at(Timestamp::from_millis(0))));
    let backup = store.backup();
    let before = append(&store, "a");
    store.restore(&backup);
    let between = append(&store, "b");
    store.restore(&backup);
    let after = append(&store, "c");
    assert!(before < between && between < after, "{before} {between} {after}");
}
