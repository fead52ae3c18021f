//! `quell send`: one event, and many.

use serde_json::Value;

use crate::support::{Folder, items};

#[test]
fn a_payload_comes_from_an_argument_from_stdin_or_from_plain_text() {
    let folder = Folder::new();
    folder.send("chat", "ada", r#"{"n":1.0}"#);
    folder.quell_with(&["send", "chat", "ada", "-"], "{\"n\":2}\n").ok();
    folder.quell(&["send", "chat", "ada", "--text", "it's me"]).ok();
    folder.quell_with(&["send", "chat", "ada", "--text", "-"], "two\nlines").ok();
    folder.quell(&["send", "chat", "ada"]).ok();
    folder.quell(&["send", "chat", "ada", "-5"]).ok();
    let answer = folder.quell(&["lane", "chat", "ada", "--payloads", "--json"]).ok();
    assert!(answer.out.contains(r#"{"n":1.0}"#), "bytes are kept as sent: {}", answer.out);
    let payloads: Vec<Value> =
        answer.json()["events"].as_array().unwrap().iter().map(|event| event["payload"].clone()).collect();
    let expected = serde_json::json!([{ "n": 1.0 }, { "n": 2 }, "it's me", "two\nlines", {}, -5]);
    assert_eq!(Value::Array(payloads), expected);
}

#[test]
fn text_without_quotes_is_refused_with_the_way_out() {
    let folder = Folder::new();
    let refused = folder.quell(&["send", "chat", "ada", "it's me"]).exits(2).complains("not valid JSON");
    refused.complains("--text").complains(r#"'"it'\''s me"'"#);
    folder.quell_with(&["send", "chat", "ada", "-"], "{").exits(2).complains("not valid JSON");
    folder.quell(&["send", "Chat", "ada", "1"]).exits(2).complains("queue name \"Chat\"");
    folder.quell(&["send", "chat", "", "1"]).exits(2).complains("key is empty");
    folder.quell(&["send", "chat", "ada", "--text"]).exits(2).complains("--text needs a text");
    assert!(!folder.path("quell.db").exists(), "a refused event makes no store");
}

#[test]
fn a_repeated_id_is_stored_once_and_another_payload_is_a_conflict() {
    let folder = Folder::new();
    let first = folder.json(&["send", "chat", "ada", r#"{"a":1}"#, "--id", "m1"]);
    let second = folder.json(&["send", "chat", "ada", r#"{ "a": 1 }"#, "--id", "m1"]);
    assert_eq!((&first["duplicate"], &second["duplicate"]), (&false.into(), &true.into()));
    assert_eq!((&first["seq"], &first["run_id"]), (&second["seq"], &second["run_id"]));
    folder.quell(&["send", "chat", "ada", r#"{"a":1}"#, "--id", "m1"]).ok().says("already there: m1");
    folder.quell(&["send", "chat", "ada", "2", "--id", "m1"]).exits(4).complains("another payload");
    folder.quell(&["send", "chat", "ada", "2", "--id", "m1", "--tenant", "acme"]).ok().says("stored m1");
    assert_eq!(folder.json(&["lane", "chat", "ada"])["buffered"], 1);
}

#[test]
fn a_queue_that_the_file_does_not_name_is_not_found_and_a_limit_is_refused() {
    let folder = Folder::with_config("[queues.chat]\nmax_payload = \"10B\"\n");
    folder.quell(&["send", "caht", "ada", "1"]).exits(3).complains("the configuration knows chat");
    folder.quell(&["send", "chat", "ada", "\"0123456789\""]).exits(4).complains("the queue allows 10");
    folder.quell_with(&["send", "caht", "--bulk", "-"], "{\"key\":\"a\",\"payload\":1}\n").exits(3);
}

/// 5,000 lines with every mistake that a line can have; the rest must arrive, in order.
#[test]
fn a_bulk_reports_bad_lines_by_number_and_loses_nothing_of_the_rest() {
    let folder = Folder::with_config("[queues.chat]\nmax_payload = \"1KiB\"\nwindow = { quiet = \"1h\" }\n");
    let mut lines: Vec<String> =
        (1..=5_000).map(|n| format!(r#"{{"key":"k{}","payload":{{"n":{n}}},"id":"m{n}"}}"#, n % 7)).collect();
    lines[99] = "not json".to_owned();
    lines[999] = r#"{"payload":1}"#.to_owned();
    lines[1_499] = r#"{"key":"","payload":1}"#.to_owned();
    lines[2_499] = format!(r#"{{"key":"k1","payload":"{}"}}"#, "x".repeat(2_000));
    lines[2_999] = r#"{"key":"k1","payload":1,"colour":"red"}"#.to_owned();
    // Line 1 again: a duplicate of the same group is none of the mistakes. Line 4,501 takes its id for another payload.
    lines[3_999] = lines[0].clone();
    lines[4_500] = r#"{"key":"k1","payload":"other","id":"m1"}"#.to_owned();
    lines[4_599] = r#"{"key":"elsewhere","payload":1,"tenant":"acme"}"#.to_owned();
    lines[4_699] = String::new();
    folder.write("events.ndjson", &lines.join("\n"));

    let answer = folder.quell(&["send", "chat", "--bulk", "events.ndjson", "--json"]).exits(1);
    let receipts: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(receipts.len(), 4_999, "one answer per line that is not empty");
    assert!(receipts.windows(2).all(|two| two[0]["line"].as_u64() < two[1]["line"].as_u64()), "in order");
    let refused: Vec<u64> =
        receipts.iter().filter(|r| r["error"].is_string()).map(|r| r["line"].as_u64().unwrap()).collect();
    assert_eq!(refused, [100, 1_000, 1_500, 2_500, 3_000, 4_501]);
    let duplicates: Vec<&Value> = receipts.iter().filter(|r| r["duplicate"] == true).collect();
    assert_eq!((duplicates.len(), &duplicates[0]["line"]), (1, &4_000.into()));
    let answer = answer.complains("line 100: expected ident").complains("line 1000: missing field `key`");
    let answer = answer.complains("line 2500: over-limit").complains("line 4501: conflict");
    answer.complains("4992 stored, 1 already there, 6 refused");

    assert_eq!(items(&folder.json(&["lanes", "--tenant", "acme"])).len(), 1);
    let doctor = folder.json(&["doctor"]);
    let accepted: u64 =
        doctor["queues"].as_array().unwrap().iter().map(|q| q["accepted"].as_u64().unwrap()).sum();
    assert_eq!(accepted, 4_992);

    // Sent again as it is, everything with an id is already there; the two lines without one are the exceptions.
    let again = folder.quell(&["send", "chat", "--bulk", "events.ndjson"]).exits(1);
    again.says("1 stored, 4992 already there, 6 refused");
}

#[test]
fn a_bulk_can_stop_at_the_first_mistake_and_reads_stdin() {
    let folder = Folder::new();
    let input = "{\"key\":\"a\",\"payload\":1}\n{\"key\":\"a\"}\n{\"key\":\"a\",\"payload\":3}\n";
    let answer = folder.quell_with(&["send", "chat", "--bulk", "-", "--stop-on-error"], input).exits(1);
    answer.complains("stopped at line 2").says("1 stored, 0 already there, 1 refused");
    assert_eq!(folder.json(&["lane", "chat", "a"])["buffered"], 1);
    folder.quell_with(&["send", "chat", "--bulk", "-"], "").ok().says("0 stored");
    folder
        .quell(&["send", "chat", "--bulk", "missing.ndjson"])
        .exits(1)
        .complains("cannot read missing.ndjson");
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_does_not_end_a_bulk() {
    let folder = Folder::new();
    let lines: String = (0..3_000).map(|n| format!("{{\"key\":\"k{}\",\"payload\":{n}}}\n", n % 7)).collect();
    folder.write("events.ndjson", &lines);
    let pipe = format!("{} send chat --bulk events.ndjson --json | head -1", env!("CARGO_BIN_EXE_quell"));
    let shell =
        std::process::Command::new("sh").args(["-c", &pipe]).current_dir(folder.path(".")).output().unwrap();
    assert_eq!(shell.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    let said = String::from_utf8_lossy(&shell.stderr);
    assert!(said.contains("3000 stored"), "{said}");
}
