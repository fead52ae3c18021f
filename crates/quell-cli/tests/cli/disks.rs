//! Disks that are full or read-only: refused with the reason, everything acknowledged kept, service resumes by itself.
//!
//! These tests mount small file systems of their own, which takes root; without it they fail and say so.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Folder, until};

/// A file system in memory, unmounted at the end.
struct Disk {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn mount(size: &str) -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk { path: folder.path().join("disk"), _folder: folder };
        std::fs::create_dir(&disk.path).unwrap();
        let options = format!("size={size}");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "quell-test"])
            .arg(&disk.path)
            .output();
        let why = match done {
            Ok(output) if output.status.success() => return disk,
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        panic!(
            "this test needs a small file system of its own and could not mount one (run it as root): {why}"
        );
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.path).status().unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn event_ids(folder: &Folder) -> BTreeSet<String> {
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    let mut statement = file.prepare("SELECT id FROM event").unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_full_disk_refuses_loses_nothing_and_is_forgotten_once_there_is_room() {
    let disk = Disk::mount("2m");
    let folder = Folder::at(&disk.path);
    // In the way until room is needed.
    std::fs::write(folder.path("filler"), vec![0; 700 * 1024]).unwrap();
    let config = "[worker]\nerror_wait = \"100ms\"\n[queues.chat]\nwindow = { quiet = \"1h\" }\n[queues.now]\nwindow = \"none\"\n";
    folder.write("quell.toml", config);
    let mut worker = folder.start(&["serve"]).started();

    let payload = format!("\"{}\"", "x".repeat(20_000));
    let mut acknowledged = BTreeSet::new();
    let refused = loop {
        assert!(acknowledged.len() < 200, "2 MiB cannot hold this");
        let id = format!("m{}", acknowledged.len());
        let answer = folder.quell(&["send", "chat", "ada", &payload, "--id", &id, "--json"]);
        if answer.code != 0 {
            break answer.exits(5);
        }
        assert_eq!(answer.json()["duplicate"], false);
        acknowledged.insert(id);
    };
    assert!(refused.err.contains("disk") && refused.err.contains("full"), "{}", refused.err);
    assert!(acknowledged.len() > 5, "{acknowledged:?}");
    let bulk = folder
        .quell_with(&["send", "chat", "--bulk", "-"], &format!("{{\"key\":\"b\",\"payload\":{payload}}}\n"));
    bulk.exits(5).complains("everything before line 1 has its answer");

    std::fs::remove_file(folder.path("filler")).unwrap();
    let late = folder.quell(&["send", "chat", "ada", &payload, "--id", "late", "--json"]).ok();
    assert_eq!(late.json()["duplicate"], false, "what was refused is not there");
    acknowledged.insert("late".to_owned());
    folder.quell(&["send", "now", "bob", "1", "--id", "bob"]).ok();
    worker.line("now/bob: 1 event");
    worker.stop();
    acknowledged.insert("bob".to_owned());
    assert_eq!(event_ids(&folder), acknowledged);
    let doctor = folder.quell(&["doctor", "--json"]).exits(1).json();
    assert_eq!(doctor["verified"]["problems"], Value::Array(Vec::new()), "only the disk is small: {doctor}");
    assert!(doctor["findings"][0]["text"].as_str().unwrap().contains("free on the store's disk"), "{doctor}");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let disk = Disk::mount("2m");
    let folder = Folder::at(&disk.path);
    disk.remount("ro");
    let refused = |args: &[&str]| {
        let output = folder.command(args).env("QUELL_WORKER_START_TIMEOUT", "100ms").output().unwrap();
        assert_eq!(output.status.code(), Some(5));
        String::from_utf8(output.stderr).unwrap()
    };
    for args in [["send", "chat", "a", "1"].as_slice(), &["serve"]] {
        let text = refused(args);
        assert!(text.contains("sqlite:./quell.db (from default)"), "{text}");
        assert!(text.contains("must be writable for this user"), "{text}");
    }
    folder.quell(&["init"]).exits(1).complains("cannot write quell.toml");

    disk.remount("rw");
    folder.send("chat", "a", "1");
    disk.remount("ro");
    let text = refused(&["send", "chat", "a", "2"]);
    assert!(text.contains("writable"), "{text}");
    disk.remount("rw");
    until("service", || folder.quell(&["send", "chat", "a", "2"]).code == 0);
    assert_eq!(folder.json(&["lane", "chat", "a"])["buffered"], 2);
}
