//! The hook itself: it keeps every event, and the agent neither hears of it nor waits for it.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use quell_transcripts::shape::is_safe_for_continue;
use serde_json::Value;

use super::host::{CLOCKS_APART, Host, Watch, fixture, millis, now, until};
use crate::support::PATIENCE;

const SESSION: &str = "30113672-ca10-4be8-84df-3d1f4db8581e";

fn fixtures(folder: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(fixture(folder)).unwrap().map(|entry| entry.unwrap().path());
    let wanted = entries.filter(|path| path.is_file() && !path.ends_with("settings.example.json"));
    let mut all: Vec<_> = wanted
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap()))
        .collect();
    all.sort();
    all
}

fn name_of(event: &[u8]) -> Option<String> {
    let event: Value = serde_json::from_slice(event).ok()?;
    event["session_id"].as_str()?;
    Some(event["hook_event_name"].as_str()?.to_owned())
}

#[test]
fn every_event_there_is_is_kept_once_and_nothing_is_said() {
    let host = Host::new();
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    let mut refused = 0;
    for (file, event) in fixtures("hooks").into_iter().chain(fixtures("hooks/odd")) {
        let name = name_of(&event);
        for flags in [&["hook"][..], &["hook", "--print-continue"]] {
            let said = host.feed(&mut host.command(flags), &event).ok();
            let safe = flags.len() == 2 && name.as_deref().is_some_and(is_safe_for_continue);
            assert_eq!(said.out, if safe { "{\"continue\":true}\n" } else { "" }, "{file}");
            assert_eq!(said.err, "", "{file}");
            match &name {
                Some(name) => *wanted.entry(name.clone()).or_default() += 1,
                None => refused += 1,
            }
        }
    }
    assert_eq!(refused, 8, "four of the odd ones are no events");
    host.quiet();
    let session = host.session(SESSION);
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    for event in session["hook_events"].as_array().unwrap() {
        *kept.entry(event["name"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(kept, wanted);
    assert!(kept.contains_key("SomethingNew"), "an event that nobody knows yet is kept, too");
    let log = host.log();
    let told = log.lines().filter(|line| line.contains("not a hook event"));
    assert_eq!(told.count(), refused, "{log}");
    for text in ["hello", "example", "coin-shop", SESSION, "stop_hook_active"] {
        assert!(!log.contains(text), "{text} is in the log:\n{log}");
    }
}

#[test]
fn an_agent_that_leaves_the_pipe_open_does_not_hold_the_hook_up() {
    let host = Host::new();
    host.write("s", 0..2);
    let mut command = host.command(&["hook"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut open = child.stdin.take().unwrap();
    open.write_all(host.event("Stop", "s").to_string().as_bytes()).unwrap();
    until("the hook ends", || child.try_wait().unwrap().is_some());
    let said = child.wait_with_output().unwrap();
    assert!(said.status.success() && said.stdout.is_empty() && said.stderr.is_empty(), "{said:?}");
    drop(open);
    host.stored("s", 2);
}

/// Settings that are wrong in some way, and the one event that is kept all the same.
fn kept_all_the_same(host: &Host, args: &[&str], env: &[(&str, &str)], logged: &str) {
    host.write("s", 0..2);
    let mut command = host.command(args);
    command.envs(env.iter().copied());
    let called = now();
    let said = host.feed(&mut command, host.event("Stop", "s").to_string().as_bytes()).ok();
    assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    assert!(host.log().contains(logged), "{logged:?} is not in the log:\n{}", host.log());
    host.stored("s", 2);
    host.quiet();
    let run = &host.runs("s")[0];
    let waited = host.number("SELECT claimed_at FROM run") - called;
    assert!(waited >= 2_000 - CLOCKS_APART, "the usual window is two seconds, not {waited}: {run}");
    assert_eq!(run["events"], 1);
}

#[test]
fn a_debounce_that_is_none_is_logged_and_the_usual_one_is_used() {
    let host = Host::debouncing(None);
    kept_all_the_same(&host, &["hook"], &[("DEBOUNCE_SECONDS", "soon")], "DEBOUNCE_SECONDS");
    // Where a person sees it, it is refused.
    for args in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"], &["sessions"]] {
        let mut command = host.command(args);
        command.env("DEBOUNCE_SECONDS", "soon");
        host.feed(&mut command, b"").exits(2).complains("DEBOUNCE_SECONDS");
    }
}

#[test]
fn a_configuration_that_is_broken_is_logged_and_the_usual_settings_are_used() {
    let host = Host::debouncing(None).configured("[queues.transcripts\nwindow = 7");
    kept_all_the_same(&host, &["hook"], &[], "quell.toml");
}

#[test]
fn a_configuration_about_other_queues_takes_nothing_away() {
    let host = Host::new().configured("[queues.jobs]\nwindow = \"none\"\n");
    host.write("s", 0..2);
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.log(), "");
}

#[test]
fn flags_that_nobody_knows_are_logged_and_the_event_is_kept() {
    let host = Host::debouncing(None);
    kept_all_the_same(&host, &["hook", "--config", "/nowhere/quell.toml"], &[], "/nowhere/quell.toml");
    let other = Host::debouncing(None);
    // An agent takes 2, which a command line that is not understood ends with, as an order to stop.
    kept_all_the_same(&other, &["hook", "--frobnicate", "5", "--token-file"], &[], "--frobnicate");
}

#[test]
fn a_store_that_cannot_be_used_fails_no_agent() {
    let host = Host::new();
    std::fs::write(host.path("file"), "").unwrap();
    let below = format!("sqlite:{}/quell.db", host.path("file").display());
    for store in [below.as_str(), "redis://127.0.0.1:1", "nonsense://x", "sqlite:", ""] {
        let mut command = host.command(&["hook", "--store", store, "--print-continue"]);
        let said = host.feed(&mut command, host.event("Stop", "s").to_string().as_bytes()).ok();
        assert_eq!(said.err, "", "{store}");
    }
    let log = std::fs::read_to_string(host.path("data/quell/hook.log")).unwrap_or_default();
    assert!(log.contains("Redis"), "{log}");
}

#[test]
fn a_locked_database_costs_the_agent_little_and_loses_nothing() {
    let host = Host::new();
    let median = |from: usize| {
        let mut times: Vec<Duration> = (from..from + 5)
            .map(|number| {
                host.write("s", number..number + 1);
                let watch = Watch::start();
                host.stop("s");
                watch.elapsed()
            })
            .collect();
        times.sort();
        times[2]
    };
    let free = median(0);
    host.stored("s", 5);
    host.quiet();
    let connection = host.connection().unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let locked = median(5);
    assert!(locked < Duration::from_secs(1) + 3 * free, "{locked:?} locked, {free:?} free");
    assert!(!host.spool().is_empty().unwrap(), "nobody could bring anything in");
    connection.execute_batch("ROLLBACK").unwrap();
    drop(connection);
    // No other hook comes.
    host.stored("s", 10);
    host.quiet();
    assert_eq!(host.hook_events("s"), 10);
}

#[test]
fn a_database_that_is_not_there_yet_is_made_by_the_worker() {
    let host = Host::new();
    host.write("s", 0..2);
    host.stop("s");
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.log(), "", "the first event of all is nothing to tell of");
    assert_eq!(host.hook_events("s"), 1);
}

#[test]
fn while_a_server_works_on_the_database_no_hook_starts_a_worker() {
    let host = Host::new();
    std::fs::create_dir_all(host.database().parent().unwrap()).unwrap();
    let serve = host.start(&["--store", &host.store(), "serve"]).started();
    until("the server has the lock", || host.somebody_works());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(host.processes(), []);
                millis(5);
            }
        });
        for number in 0..6 {
            host.write("s", number..number + 1);
            host.stop("s");
        }
        until("the server reads", || host.messages("s") == 6 || sampler.is_finished());
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        sampler.join().unwrap();
    });
    let pid = serve.pid();
    let runs = host.runs("s");
    assert_eq!(runs.iter().filter_map(|run| run["events"].as_u64()).sum::<u64>(), 6);
    assert!(runs.iter().all(|run| run["worker"].as_str().unwrap().contains(&pid.to_string())), "{runs:?}");
    serve.stop();
    host.quiet();
}

#[test]
fn what_waits_when_a_server_ends_is_still_read() {
    let host = Host::debouncing(Some("3"));
    std::fs::create_dir_all(host.database().parent().unwrap()).unwrap();
    let serve = host.start(&["--store", &host.store(), "serve"]).started();
    until("the server has the lock", || host.somebody_works());
    host.write("s", 0..2);
    host.stop("s");
    assert_eq!(host.processes(), [], "the server will do it");
    serve.stop();
    assert_eq!(host.messages("s"), 0, "the window was still open");
    host.stored("s", 2);
    host.quiet();
    assert_eq!(host.hook_events("s"), 1);
}

#[test]
fn an_event_of_any_size_is_taken_in_and_cut() {
    let host = Host::new();
    let mut event = host.event("PostToolUse", "s");
    event["tool_response"] = "x".repeat(3 << 20).into();
    host.write("s", 0..2);
    let watch = Watch::start();
    host.hook(&event);
    assert!(watch.elapsed() < PATIENCE);
    host.stored("s", 2);
    host.quiet();
    let bytes = host.number("SELECT length(payload) FROM transcripts_event");
    assert!((1..70_000).contains(&bytes), "{bytes}");
}
