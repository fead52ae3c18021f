//! The system of marker and lock files that this replaces: its timeline, its exits, its decisions and its holes.
//!
//! It kept `{ start, latest }` in a marker file for each session, started a process for each event that slept for
//! `DEBOUNCE_SECONDS`, and a lock file that counted as stale after thirty times that. Here the marker is the open run of a
//! lane, the lock is its lease, and one worker stands for all those processes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::host::{CLOCKS_APART, Frozen, Host, Role, hook_worker, in_parallel, kill, millis, now, until};
use crate::support::Process;

const MUCH: i64 = 1321;

fn events(runs: &[Value]) -> Vec<u64> {
    runs.iter().map(|run| run["events"].as_u64().unwrap()).collect()
}

/// How often a lease that ran out was taken over.
fn reclaims(host: &Host) -> usize {
    let store = host.store();
    let page = host.json(&["--store", &store, "audit", "--queue", "transcripts", "--limit", "500"]);
    page["items"].as_array().unwrap().iter().filter(|row| row["change"] == "reclaimed").count()
}

fn token(host: &Host) -> i64 {
    host.number("SELECT r_token FROM lane WHERE lease_at IS NOT NULL")
}

#[test]
fn three_events_are_one_pass_two_seconds_after_the_first() {
    let host = Host::debouncing(None).with_database();
    host.write("s", 0..2);
    let called = now();
    host.stop("s");
    let returned = now();
    until("the first is there", || host.number("SELECT count(*) FROM lane") == 1);
    let first = host.number("SELECT received_at FROM event ORDER BY seq LIMIT 1");
    for _ in 0..2 {
        millis(100);
        host.stop("s");
    }
    let due = host.number("SELECT due_at FROM lane");
    // From the call of the hook on, which was a little before somebody brought the event in.
    let wanted = called + 2_000 - CLOCKS_APART..=returned + 2_000 + CLOCKS_APART;
    assert!(wanted.contains(&due) || due == 0, "fixed from the first event: {due} is not in {wanted:?}");
    host.stored("s", 2);
    host.quiet();
    let runs = host.runs("s");
    assert_eq!(events(&runs), [3], "{runs:?}");
    assert_eq!((&runs[0]["fired_by"], &runs[0]["state"]), (&"fixed".into(), &"succeeded".into()));
    assert_eq!(host.number("SELECT first_at FROM run"), first);
    assert!(host.number("SELECT claimed_at FROM run") >= called + 2_000 - CLOCKS_APART);
    assert_eq!(host.hook_events("s"), 3);
}

#[test]
fn exit_no_marker() {
    let host = Host::new();
    std::fs::create_dir_all(host.database().parent().unwrap()).unwrap();
    // First there is not even a database, then one with nothing in it.
    for _ in 0..2 {
        let lock = quell_transcripts::keeper::alone(&host.database()).unwrap().unwrap();
        assert!(hook_worker(&host, lock).wait().unwrap().success());
        host.quiet();
    }
    assert_eq!(host.number("SELECT count(*) FROM run"), 0);
}

#[test]
fn exit_not_latest_and_not_expired() {
    let host = Host::debouncing(Some("2")).with_database();
    host.write("s", 0..2);
    host.stop("s");
    until("the first is there", || host.number("SELECT count(*) FROM lane") == 1);
    let (worker, due) = (host.worker(), host.number("SELECT due_at FROM lane"));
    let before: BTreeSet<u32> = host.workers().into_iter().collect();
    host.stop("s");
    let after: BTreeSet<u32> = host.workers().into_iter().collect();
    assert!(after.is_subset(&before) && after.contains(&worker), "{before:?}, {after:?}");
    assert_eq!(host.number("SELECT due_at FROM lane"), due, "nothing moved");
    host.stored("s", 2);
    host.quiet();
    assert_eq!(events(&host.runs("s")), [2]);
}

#[test]
fn exit_not_latest_but_expired() {
    let host = Host::debouncing(Some("1")).with_database();
    let (mut sent, called) = (0, now());
    // There is always a later event, and the first window ends all the same.
    until("a pass although events keep coming", || {
        host.write("s", sent..sent + 1);
        host.stop("s");
        sent += 1;
        host.number("SELECT count(*) FROM run") > 0
    });
    host.stored("s", i64::try_from(sent).unwrap());
    host.quiet();
    let runs = host.runs("s");
    assert!(runs.len() >= 2 && events(&runs)[0] > 1, "{runs:?}");
    assert!(runs.iter().all(|run| run["fired_by"] == "fixed"), "{runs:?}");
    assert!(host.number("SELECT min(claimed_at) FROM run") >= called + 1_000 - CLOCKS_APART);
    let overtaken = "SELECT count(*) FROM run JOIN event USING (lane_id)
                     WHERE received_at > claimed_at AND number = (SELECT min(number) FROM run)";
    assert!(host.number(overtaken) > 0, "the last event came after the first pass began");
}

#[test]
fn exit_latest() {
    let host = Host::debouncing(Some("0.5")).with_database();
    host.write("s", 0..2);
    let called = now();
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    let runs = host.runs("s");
    assert_eq!((events(&runs), &runs[0]["fired_by"]), (vec![1], &"fixed".into()));
    assert!(host.number("SELECT claimed_at FROM run") >= called + 500 - CLOCKS_APART);
}

#[test]
fn exit_live_lock() {
    let host = Host::debouncing(Some("1"));
    host.write_much("s");
    host.stop("s");
    let frozen = host.frozen("s");
    let mut second = host.another_worker();
    second.line("startup.swept");
    millis(1_000);
    assert_eq!(token(&host), frozen.token, "the lease of thirty seconds is respected");
    frozen.go_on();
    host.stored("s", MUCH);
    assert!(second.end().0.success());
    host.quiet();
    let runs = host.runs("s");
    assert_eq!((events(&runs), &runs[0]["claims"]), (vec![1], &1.into()));
}

#[test]
fn exit_stale_lock() {
    let host = Host::debouncing(Some("0.1"));
    host.write_much("s");
    host.stop("s");
    let held = host.in_the_middle("s");
    host.kill_all();
    host.gone();
    let lease_until = held.lease_until;
    drop(held);
    host.stop("s");
    host.stored("s", MUCH);
    host.quiet();
    assert_eq!(reclaims(&host), 1);
    let taken = "SELECT claimed_at FROM run ORDER BY number LIMIT 1";
    assert!(host.number(taken) >= lease_until, "not before the lease had ended");
    assert_eq!(host.number("SELECT claims FROM run ORDER BY number LIMIT 1"), 2);
    assert_eq!(host.hook_events("s"), 2);
}

/// A worker that waits for a window and is stopped meanwhile.
fn waiting_for(host: &Host) -> Frozen {
    host.write("s", 0..2);
    host.stop("s");
    until("the first is there", || host.number("SELECT count(*) FROM lane") == 1);
    let pid = host.worker();
    let turn = host.turn();
    turn.lock().unwrap();
    let connection = host.connection().unwrap();
    // Nobody may hold the database for ever.
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let frozen = Frozen::stop_now(pid, 0);
    connection.execute_batch("ROLLBACK").unwrap();
    frozen
}

#[test]
fn exit_marker_gone_after_lock() {
    let host = Host::debouncing(Some("1"));
    let frozen = waiting_for(&host);
    assert!(host.another_worker().end().0.success());
    assert_eq!(host.messages("s"), 2, "somebody else has done it");
    frozen.go_on();
    host.quiet();
    assert_eq!(events(&host.runs("s")), [1]);
    assert_eq!(host.hook_events("s"), 1);
}

#[test]
fn exit_new_event_during_processing() {
    let host = Host::new();
    host.write_much("s");
    host.stop("s");
    let frozen = host.frozen("s");
    host.write("s", 0..2);
    host.stop("s");
    assert_eq!(token(&host), frozen.token, "the run goes on");
    frozen.go_on();
    host.stored("s", MUCH + 2);
    host.quiet();
    assert_eq!(events(&host.runs("s")), [1, 1]);
}

#[test]
fn decision_rapid_events_flood_system() {
    let host = Host::debouncing(None).with_database();
    host.write("s", 0..2);
    in_parallel(12, 4, |_| host.stop("s"));
    host.stored("s", 2);
    host.quiet();
    let window = 2_000;
    let most = 1 + host.number("SELECT max(at) - min(at) FROM transcripts_event") / window;
    let runs = host.runs("s");
    assert!(i64::try_from(runs.len()).unwrap() <= most, "{runs:?}");
    assert_eq!(events(&runs).iter().sum::<u64>(), 12);
}

#[test]
fn decision_multiple_workers_wake_up() {
    let host = Host::debouncing(Some("1")).with_database();
    host.write("s", 0..2);
    host.stop("s");
    // Three wait for the same window, and one of them gets it.
    let others: Vec<Process> = (0..2).map(|_| host.another_worker()).collect();
    host.stored("s", 2);
    for other in others {
        assert!(other.end().0.success());
    }
    host.quiet();
    let runs = host.runs("s");
    assert_eq!((events(&runs), &runs[0]["claims"]), (vec![1], &1.into()));
}

#[test]
fn decision_concurrent_processing() {
    let host = Host::debouncing(Some("0.05"));
    let server = host
        .start(&[
            "--store",
            &{
                make_folder(&host);
                host.store()
            },
            "work",
        ])
        .started();
    let other = host.start(&["--store", &host.store(), "work"]).started();
    for number in 0..20 {
        host.write("s", number..number + 1);
        host.stop("s");
    }
    host.stored("s", 20);
    // An earlier pass may have read what the last hooks are about, before they were brought in.
    until("everything is done", || {
        host.spool().is_empty().unwrap()
            && host.number("SELECT count(*) FROM lane WHERE o_number IS NOT NULL OR r_number IS NOT NULL")
                == 0
    });
    let overlapping = "SELECT count(*) FROM run AS a JOIN run AS b USING (lane_id)
                       WHERE a.number < b.number AND b.claimed_at < a.finished_at";
    assert_eq!(host.number(overlapping), 0, "two passes of one session never run at once");
    assert_eq!(events(&host.runs("s")).iter().sum::<u64>(), 20);
    server.stop();
    other.stop();
    host.quiet();
}

fn make_folder(host: &Host) {
    std::fs::create_dir_all(host.database().parent().unwrap()).unwrap();
}

#[test]
fn decision_crashed_worker_leaves_lock() {
    // Thirty times the window, as it was.
    for (seconds, lease) in [("0.1", 3_000), ("0.3", 9_000)] {
        let host = Host::debouncing(Some(seconds));
        host.write_much("s");
        host.stop("s");
        let held = host.in_the_middle("s");
        let granted = held.lease_until - held.claimed_at;
        assert!((lease..lease + 1_500).contains(&granted), "{granted} for a window of {seconds} s");
    }
}

#[test]
fn decision_processed_while_waiting_for_lock() {
    let host = Host::debouncing(Some("0.1"));
    host.write_much("s");
    host.stop("s");
    let frozen = host.frozen("s");
    // Waits for the lease of the one that is stopped, which then does it after all.
    let mut second = host.another_worker();
    second.line("startup.swept");
    frozen.go_on();
    host.stored("s", MUCH);
    assert!(second.end().0.success(), "it finds nothing left");
    host.quiet();
    assert_eq!(events(&host.runs("s")), [1]);
}

#[test]
fn decision_event_during_processing_gets_lost() {
    let host = Host::new();
    host.write_much("s");
    host.stop("s");
    let held = host.in_the_middle("s");
    host.write("s", 0..2);
    // It cannot even be stored now.
    host.stop("s");
    assert!(!host.spool().is_empty().unwrap());
    drop(held);
    host.stored("s", MUCH + 2);
    host.quiet();
    assert_eq!(events(&host.runs("s")), [1, 1]);
}

#[test]
fn hole_lost_marker_update_between_two_processes() {
    let host = Host::new().with_database();
    // Two write to the marker at once; here each of them adds a row.
    in_parallel(32, 8, |number| {
        host.write("s", number..number + 1);
        host.stop("s");
    });
    host.stored("s", 32);
    host.quiet();
    assert_eq!(host.hook_events("s"), 32);
    assert_eq!(host.number("SELECT count(DISTINCT seq) FROM event"), 32);
    assert_eq!(events(&host.runs("s")).iter().sum::<u64>(), 32, "each in exactly one run");
    assert_eq!(host.log().lines().filter(|line| !line.contains("spool")).count(), 0, "{}", host.log());
}

#[test]
fn hole_two_workers_both_deleting_a_stale_lock() {
    let host = Host::debouncing(Some("0.1"));
    host.write_much("s");
    host.stop("s");
    let held = host.in_the_middle("s");
    host.kill_all();
    host.gone();
    drop(held);
    let both: Vec<Process> = (0..2).map(|_| host.another_worker()).collect();
    for one in both {
        assert!(one.end().0.success());
    }
    assert_eq!(host.messages("s"), MUCH);
    assert_eq!(reclaims(&host), 1, "one of them took it over, and only one");
    assert_eq!(host.number("SELECT claims FROM run"), 2);
}

#[test]
fn hole_event_during_processing() {
    let host = Host::debouncing(Some("0.05"));
    // While the worker is at it all the time, the transcript grows; the last event has no successor.
    for number in 0..25 {
        host.write("s", number..number + 1);
        host.stop("s");
    }
    host.stored("s", 25);
    host.quiet();
    assert_eq!(host.hook_events("s"), 25);
    assert_eq!(events(&host.runs("s")).iter().sum::<u64>(), 25);
}

#[test]
fn hole_worker_dies_and_no_later_event_comes() {
    let host = Host::debouncing(Some("0.1"));
    host.write_much("s");
    host.stop("s");
    let held = host.in_the_middle("s");
    let worker = host.worker();
    kill(worker);
    drop(held);
    until("another worker", || {
        host.processes().iter().any(|(pid, role)| *role == Role::Worker && *pid != worker)
    });
    host.stored("s", MUCH);
    host.quiet();
    assert_eq!((host.hook_events("s"), reclaims(&host)), (1, 1));
    assert!(host.log().contains("is started again"), "{}", host.log());
}

#[test]
fn hole_event_between_re_read_and_delete_of_the_marker() {
    let host = Host::debouncing(Some("0"));
    host.write("s", 0..1);
    host.stop("s");
    host.stored("s", 1);
    // Each event comes when the worker before is about to end, at another moment each time. If one is lost there, no
    // other event helps it.
    for round in 1..15_usize {
        millis(u64::try_from(round).unwrap() * 3);
        host.write("s", round..round + 1);
        host.stop("s");
        host.stored("s", i64::try_from(round).unwrap() + 1);
    }
    host.quiet();
    assert_eq!(host.hook_events("s"), 15);
}

#[test]
fn hole_event_while_a_worker_that_found_nothing_ends() {
    let host = Host::debouncing(Some("0"));
    host.write("s", 0..1);
    host.stop("s");
    host.stored("s", 1);
    for round in 1..12_usize {
        host.quiet();
        // It has nothing to do and holds the lock; the event comes somewhere in its short life.
        let lock = quell_transcripts::keeper::alone(&host.database()).unwrap().unwrap();
        let mut idle = hook_worker(&host, lock);
        millis(u64::try_from(round).unwrap() * 8);
        host.write("s", round..round + 1);
        host.stop("s");
        host.stored("s", i64::try_from(round).unwrap() + 1);
        assert!(idle.wait().unwrap().success());
    }
}

#[test]
fn hole_two_events_with_one_timestamp() {
    let host = Host::new().with_database();
    host.write("s", 0..2);
    // The same bytes at the same time, as often as can be: nothing in them tells them apart.
    let event = host.event("Notification", "s");
    in_parallel(24, 8, |_| host.hook(&event));
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.hook_events("s"), 24);
    assert_eq!(events(&host.runs("s")).iter().sum::<u64>(), 24);
}

#[test]
fn hole_slow_holder_cleanup_deletes_anothers_lock() {
    let host = Host::debouncing(Some("0.1"));
    host.write_much("s");
    host.stop("s");
    let slow = host.frozen("s");
    host.write_as_much_again("s");
    let second = host.another_worker();
    // The lease of the slow one runs out, and the second has the lane.
    let held = host.in_the_middle_after("s", slow.token);
    let taken = held.token;
    slow.go_on();
    // The slow one wants to go on, and is told that the lane is not its any more.
    millis(300);
    drop(held);
    host.stored("s", 2 * MUCH);
    assert!(second.end().0.success());
    host.quiet();
    assert_eq!((reclaims(&host), host.number("SELECT claims FROM run")), (1, 2));
    assert_eq!(host.number("SELECT token FROM run"), taken, "the second one settled it");
    assert_eq!(events(&host.runs("s")), [1]);
}
