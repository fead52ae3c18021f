//! Several processes on one file: no error reaches anybody, and nobody starves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Duration;

use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Tick;

use crate::support::{Folder, Line};

const SENDING: Duration = Duration::from_secs(3);
/// Shared by all senders, so that they meet in the same lanes as well as in the same file.
const KEYS: u64 = 1_000;

#[test]
fn four_senders_and_four_workers_share_one_file_fairly() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    let workers: Vec<_> = (0..4).map(|_| folder.start(&["work", "--concurrency", "8"]).started()).collect();
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let mut command = folder.command(&["send", "jobs", "--bulk", "-", "--json"]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            std::thread::spawn(move || feed(command))
        })
        .collect();
    let mut sent: Vec<u64> = Vec::new();
    for sender in senders {
        sent.push(sender.join().unwrap());
    }
    let all: u64 = sent.iter().sum();
    let done = folder.until("all events", &["doctor"], |doctor| doctor["queues"][0]["succeeded"] == all);
    assert_eq!((&done["ok"], &done["queues"][0]["accepted"]), (&true.into(), &all.into()), "{done}");

    let mut handled: Vec<u64> = Vec::new();
    for worker in workers {
        let lines = worker.stop();
        let bad: Vec<_> =
            lines.iter().filter(|l| l.text().contains("WARN") || l.text().contains("ERROR")).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        handled.push(lines.iter().filter_map(events_of).sum());
    }
    assert_eq!(handled.iter().sum::<u64>(), all, "every event was handled once: {handled:?}");
    for (what, shares) in [("sent", &sent), ("handled", &handled)] {
        assert!(shares.iter().all(|share| share * 20 > all), "{what}: a share of 5 % for each of {shares:?}");
    }
}

/// How many events a line of a worker tells of: `… jobs/k7: 3 events, fired by …`.
fn events_of(line: &Line) -> Option<u64> {
    let Line::Out(text) = line else { return None };
    text.split_once(": ")?.1.split_once(" event")?.0.parse().ok()
}

/// Feeds one sender for a while; the number of events it was acknowledged.
fn feed(mut command: std::process::Command) -> u64 {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let receipts = std::thread::spawn(move || {
        let mut by_kind: BTreeMap<bool, u64> = BTreeMap::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            *by_kind.entry(line.contains("\"seq\"")).or_default() += 1;
        }
        by_kind
    });
    let said = std::thread::spawn(move || std::io::read_to_string(stderr).unwrap());
    let time = RealTime::new();
    let mut lines = 0;
    while time.tick().since(Tick::default()) < SENDING {
        writeln!(stdin, "{{\"key\":\"k{}\",\"payload\":{lines}}}", lines % KEYS).unwrap();
        lines += 1;
    }
    drop(stdin);
    let status = child.wait().unwrap();
    let (receipts, said) = (receipts.join().unwrap(), said.join().unwrap());
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(said.trim(), format!("{lines} stored, 0 already there, 0 refused"));
    assert_eq!(receipts, BTreeMap::from([(true, lines)]));
    lines
}
