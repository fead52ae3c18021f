//! The first signal lets work end, the second does not wait for it; several processes act as one.

use rustix::process::Signal;

use crate::support::{Folder, Line, Process, is_alive, items, signal_to, until};

fn hanging(script: &str) -> Folder {
    let config = "[queues.jobs]\nwindow = \"none\"\nlease = \"30s\"\nhandler = { exec = [\"/bin/sh\", \"handle.sh\"] }\n";
    let folder = Folder::with_config(config);
    folder.write("handle.sh", script);
    folder
}

/// Starts a worker and waits until its program has said its pid.
fn busy(folder: &Folder, args: &[&str]) -> (Process, u32) {
    let worker = folder.start(args).started();
    folder.send("jobs", "a", "1");
    until("the program", || folder.read("pid").ends_with('\n'));
    (worker, folder.read("pid").trim().parse().unwrap())
}

#[test]
fn the_first_signal_ends_with_0_and_the_run_is_finished_or_handed_back() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = hanging("echo $$ > pid; exec sleep 20");
        let (worker, program) = busy(&folder, &["serve", "--grace", "1s"]);
        worker.signal(signal);
        let (status, lines) = worker.end();
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        assert!(lines.iter().any(|line| line.text().contains("stopping: ")), "{lines:#?}");
        until("the program's end", || !is_alive(program));
        let run = folder.json(&["runs"])["items"][0].clone();
        assert_eq!(
            (&run["state"], &run["attempts"]),
            (&"pending".into(), &0.into()),
            "handed back and refunded: {run}"
        );
        folder.write("handle.sh", "exit 0");
        folder.quell(&["work", "--until-idle"]).ok();
        assert_eq!(folder.json(&["runs"])["items"][0]["state"], "succeeded");
    }
}

#[test]
fn a_program_that_ends_within_the_grace_is_waited_for_and_its_answer_counts() {
    let folder = hanging("echo $$ > pid; until [ -e go ]; do sleep 0.05; done");
    let (mut worker, _) = busy(&folder, &["serve", "--grace", "20s"]);
    worker.signal(Signal::TERM);
    worker.line("stopping: ");
    folder.write("go", "");
    let (status, lines) = worker.end();
    assert_eq!(status.code(), Some(0), "{lines:#?}");
    assert_eq!(folder.json(&["runs"])["items"][0]["state"], "succeeded");
}

#[test]
fn the_second_signal_ends_at_once_and_leaves_the_lease_to_expire() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        // The program ignores the request to end, so the first signal has something to wait for.
        let folder = hanging("trap '' TERM; echo $$ > pid; while :; do sleep 1; done");
        let (mut worker, program) = busy(&folder, &["serve"]);
        worker.signal(signal);
        worker.line("stopping: ");
        worker.signal(signal);
        let (status, lines) = worker.end();
        assert_eq!(status.code(), Some(code), "{lines:#?}");
        until("the program's end", || !is_alive(program));
        let run = folder.json(&["runs"])["items"][0].clone();
        assert_eq!((&run["state"], &run["attempts"]), (&"running".into(), &1.into()), "{run}");
    }
}

/// The pids in the start lines of all processes.
fn pids(worker: &mut Process, processes: usize) -> Vec<u32> {
    let pid = |line: String| {
        let rest = line.split_once("pid=").unwrap().1.to_owned();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let mut pids: Vec<u32> = (0..processes).map(|_| pid(worker.line("startup.swept"))).collect();
    pids.sort_unstable();
    pids
}

#[test]
fn several_processes_start_work_and_stop_as_one() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    let mut worker = folder.start(&["serve", "--processes", "3", "--concurrency", "2"]);
    let pids = pids(&mut worker, 3);
    assert!(pids.contains(&worker.pid()) && pids.windows(2).all(|two| two[0] != two[1]), "{pids:?}");
    for n in 0..20 {
        folder.send("jobs", &format!("k{n}"), "1");
    }
    folder.until("all runs", &["runs", "--state", "succeeded"], |page| items(page).len() == 20);
    let lines = worker.stop();
    let ended = lines.iter().filter(|line| line.text().contains("worker.ended")).count();
    assert_eq!(ended, 3, "{lines:#?}");
    assert!(pids.into_iter().all(|pid| !is_alive(pid)));
}

#[test]
fn a_child_that_dies_is_replaced_and_children_never_outlive_their_parent() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    let mut worker = folder.start(&["work", "--processes", "2"]);
    let first = pids(&mut worker, 2);
    let child = first.into_iter().find(|pid| *pid != worker.pid()).unwrap();
    signal_to(child, Signal::KILL);
    worker.line("a worker process died");
    let second = pids(&mut worker, 1)[0];
    assert_ne!(second, child);
    worker.signal(Signal::KILL);
    until("the child's end", || !is_alive(second));
    let (_, lines) = worker.end();
    assert!(
        lines.contains(
            lines.iter().find(|l| matches!(l, Line::Err(t) if t.contains("worker.ended"))).unwrap()
        )
    );
}

#[test]
fn until_idle_with_several_processes_ends_when_all_are_idle() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    for n in 0..50 {
        folder.send("jobs", &format!("k{n}"), "1");
    }
    folder.quell(&["work", "--until-idle", "--processes", "3"]).ok();
    assert_eq!(items(&folder.json(&["runs", "--state", "succeeded", "--limit", "100"])).len(), 50);
}

#[test]
fn a_queue_that_is_named_twice_is_worked_on_once() {
    let folder = Folder::with_config("[queues.jobs]\nwindow = \"none\"\n");
    folder.send("jobs", "a", "1");
    folder.quell(&["work", "--until-idle", "--queue", "jobs", "--queue", "jobs"]).ok();
    assert_eq!(items(&folder.json(&["runs", "--state", "succeeded"])).len(), 1);
}

/// `script` gives it a terminal, which is closed when `script` is gone. Elsewhere a hang-up has the configuration read again.
#[test]
fn a_closed_terminal_asks_like_sigterm() {
    let folder = hanging("echo $$ > pid; exec sleep 20");
    folder.send("jobs", "a", "1");
    let quell = env!("CARGO_BIN_EXE_quell");
    let worker = format!("env --default-signal=HUP {quell} work --grace 1s 2> log");
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &worker, "/dev/null"]).current_dir(folder.path(""));
    let terminal = Process::start(command);
    until("the program runs", || folder.read("pid").trim().parse::<u32>().is_ok());
    let program = folder.read("pid").trim().parse().unwrap();
    drop(terminal);
    until("the worker ended by itself", || folder.read("log").contains("worker.ended"));
    until("the program's end", || !is_alive(program));
}
