//! The demo is a promise of its own: short, without questions, and true.

use std::time::Duration;

use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Tick;

use crate::support::Folder;

#[test]
fn the_demo_of_prices_collects_each_item_once_and_values_it() {
    let folder = Folder::new();
    let answer = folder.quell(&["demo", "prices"]).ok();
    let answer = answer.says("6 requests for 3 coins at 2 sources").says("0 items are stored twice");
    let answer = answer.says("eagle-2024").says("morgan-1921").says("maple-2023").says("USD");
    assert_eq!(answer.err, "");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}

#[test]
fn the_demo_shows_its_five_points_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let time = RealTime::new();
    let mut answer = folder.quell(&["demo"]).ok();
    // It takes four seconds; the promise is fifteen, and a noisy machine gets four times that.
    assert!(time.tick().since(Tick::default()) < Duration::from_secs(60));
    for point in [
        "1. Three quick events of one customer become one batch",
        "handed over: 3 events of ada in one batch, fired by quiet",
        "2. An event that arrives during a run waits for the next one",
        "3. A worker process is killed, another one takes over",
        "attempt 2",
        "4. The same id twice is stored once",
        "already there, the first receipt again",
        "conflict: event id refund-17",
        "5. Everything is written down, and nothing is lost",
        "reclaimed",
        "holds",
        "ok all 7 events are accounted for",
    ] {
        answer = answer.says(point);
    }
    assert_eq!(answer.err, "");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0);
}
