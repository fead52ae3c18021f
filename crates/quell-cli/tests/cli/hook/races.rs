//! Many hooks of many sessions at once: one worker, and every line once.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::host::{Host, Role, in_parallel, millis};

#[test]
fn five_hundred_hooks_of_twenty_sessions_need_one_worker() {
    const SESSIONS: usize = 20;
    const EACH: usize = 25;
    let host = Host::debouncing(None);
    let done = AtomicBool::new(false);
    let session = |number: usize| format!("session-{:02}", number / EACH);
    let (most, seen) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let (mut most, mut seen) = (0, BTreeSet::new());
            while !done.load(Ordering::Relaxed) {
                let now: Vec<u32> = host
                    .processes()
                    .into_iter()
                    .filter_map(|(pid, role)| (role == Role::Worker).then_some(pid))
                    .collect();
                most = most.max(now.len());
                seen.extend(now);
                millis(10);
            }
            (most, seen)
        });
        in_parallel(SESSIONS * EACH, 16, |number| {
            host.write(&session(number), number..number + 1);
            host.stop(&session(number));
        });
        for number in (0..SESSIONS * EACH).step_by(EACH) {
            host.stored(&session(number), i64::try_from(EACH).unwrap());
        }
        host.quiet();
        done.store(true, Ordering::Relaxed);
        sampler.join().unwrap()
    });
    assert_eq!(most, 1, "there was never more than one worker at a time, of {seen:?}");
    assert_eq!(host.number("SELECT count(*) FROM transcripts_message"), 500);
    // Where one that is missing was last seen.
    let bad = std::fs::read_to_string(host.spool().folder().join("bad"));
    assert_eq!(host.number("SELECT sum(count) FROM run"), 500, "put aside: {bad:?}\n{}", host.log());
    assert_eq!(host.number("SELECT count(*) FROM transcripts_event"), 500, "{}", host.log());
    // A window is fixed, so a burst has one pass for each two seconds that it lasted, and one more.
    let too_many = "SELECT count(*) FROM (
        SELECT s.session_id, (s.latest - s.first) / 2000 + 1 AS most,
          (SELECT count(*) FROM run JOIN lane ON lane.id = run.lane_id WHERE lane.key = s.session_id) AS passes
        FROM (SELECT session_id, min(at) AS first, max(at) AS latest FROM transcripts_event GROUP BY session_id) AS s)
        WHERE passes > most OR passes < 1";
    assert_eq!(host.number(too_many), 0);
    let passes = host.number("SELECT count(*) FROM run");
    assert!(passes < 250, "{passes} passes for 500 events");
}
