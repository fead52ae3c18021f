//! What comes by the calendar.

use serde_json::Value;

use crate::support::{Folder, items};

const CONFIG: &str = "[queues.jobs]\nwindow = \"none\"\n";

#[test]
fn schedules_are_put_listed_changed_and_removed() {
    let folder = Folder::with_config(CONFIG);
    let put = ["schedules", "put", "nightly", "--cron", "0 3 * * *", "--queue", "jobs", "--key", "daily"];
    folder.quell(&put).ok().says("put schedule nightly: it fires at ").says("T03:00:00.000Z (in ");
    folder.quell(&put).ok().says("schedule nightly was there just so");
    let zoned = [put.as_slice(), &["--zone", "asia/tokyo", "--payload", r#"{"n":1}"#]].concat();
    let changed = folder.json(&zoned);
    assert_eq!((&changed["changed"], &changed["zone"]), (&true.into(), &"Asia/Tokyo".into()), "{changed}");
    assert!(changed["next_at"].as_str().unwrap().contains("T18:00:00.000Z"), "{changed}");

    folder.quell(&["schedules"]).ok().says("NEXT FIRE").says("nightly  0 3 * * *  Asia/Tokyo  jobs/daily  -");
    let all = folder.json(&["schedules"]);
    let one = &items(&all)[0];
    assert_eq!((&one["last_fire"], &one["payload"]["n"]), (&Value::Null, &1.into()), "{all}");
    assert_eq!(items(&folder.json(&["schedules", "--queue", "mail"])).len(), 0);
    folder.quell(&["doctor"]).ok().says("schedules       1");
    assert_eq!(folder.json(&["doctor"])["schedules"], 1);
    folder.quell(&["audit"]).ok().says("schedule_put").says("tester@");

    folder.quell(&["schedules", "remove", "nightly"]).ok().says("removed schedule nightly");
    folder.quell(&["schedules", "remove", "nightly"]).exits(3).complains("there is no schedule nightly");
    folder.quell(&["schedules"]).ok().complains("no schedules");
}

#[test]
fn a_mistake_in_a_schedule_is_named() {
    let folder = Folder::with_config(CONFIG);
    let put = |extra: &[&str]| {
        let plain = ["schedules", "put", "x", "--queue", "jobs", "--key", "k"];
        folder.quell(&[plain.as_slice(), extra].concat())
    };
    put(&["--cron", "61 * * * *"]).exits(2).complains("minute \"61\"");
    put(&["--cron", "0 0 31 2 *"]).exits(2).complains("never fires");
    put(&["--cron", "@daily", "--zone", "Mars/Base"]).exits(2).complains("IANA");
    put(&["--cron", "@daily", "--payload", "seven"]).exits(2).complains("not valid JSON");
    folder.quell(&["schedules", "put", "X y", "--cron", "@daily", "--queue", "jobs", "--key", "k"]).exits(2);
    let ours = ["schedules", "put", "config.x", "--cron", "@daily", "--queue", "jobs", "--key", "k"];
    folder.quell(&ours).exits(2).complains("belongs to the configuration");
}

#[test]
fn a_preview_needs_no_store() {
    let folder = Folder::new();
    let shown =
        folder.quell(&["schedules", "next", "30 6 1 1 *", "--zone", "America/New_York", "-n", "3"]).ok();
    assert_eq!(shown.out.lines().count(), 4, "{}", shown.out);
    shown.says("ON THE CLOCK").says("-01-01T11:30:00.000Z").says("-01-01 06:30 EST");
    let fires = folder.json(&["schedules", "next", "@hourly", "-n", "2"]);
    assert_eq!(items(&fires).len(), 2);
    assert!(items(&fires)[0]["at"].as_str().unwrap().ends_with(":00:00.000Z"), "{fires}");
    folder.quell(&["schedules", "next", "every day"]).exits(2).complains("five fields");
    assert!(!folder.path("quell.db").exists());
}

/// Moves the clock of the store's file for everybody who opens it.
fn advance(folder: &Folder, millis: i64) {
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute("UPDATE meta SET clock_offset = clock_offset + ?1", [millis]).unwrap();
}

#[test]
fn a_schedule_fires_once_when_its_time_has_come() {
    let folder = Folder::with_config(CONFIG);
    let put = [
        "schedules",
        "put",
        "tick",
        "--cron",
        "0 * * * *",
        "--queue",
        "jobs",
        "--key",
        "k",
        "--payload",
        "7",
    ];
    folder.quell(&put).ok();
    // Three hours of downtime: only the latest fire runs.
    advance(&folder, 3 * 3_600_000);
    let mut workers: Vec<_> = (0..2).map(|_| folder.start(&["work", "--show-payloads"])).collect();
    folder.until("the fire", &["runs", "--state", "succeeded"], |page| !items(page).is_empty());
    let row = items(&folder.json(&["schedules"]))[0].clone();
    assert!(row["last_fire"].as_str().unwrap().ends_with(":00:00.000Z"), "{row}");
    assert!(row["last_fire"].as_str() < row["next_at"].as_str(), "{row}");
    let runs = folder.json(&["runs"]);
    assert_eq!(items(&runs).len(), 1, "{runs}");
    let run = folder.json(&["run", items(&runs)[0]["id"].as_str().unwrap(), "--payloads"]);
    assert_eq!(run["list"][0]["payload"], 7);
    let id = run["list"][0]["id"].as_str().unwrap();
    assert_eq!(id, format!("schedule/tick/{}", row["last_fire"].as_str().unwrap()));
    workers.drain(..).for_each(|worker| drop(worker.stop()));
}

#[test]
fn schedules_of_the_file_are_put_by_a_worker_and_shown_as_such() {
    let section = "[schedules.nightly]\ncron = \"0 3 * * *\"\nqueue = \"jobs\"\nkey = \"daily\"\n";
    let folder = Folder::with_config(&format!("{CONFIG}{section}"));
    folder.quell(&["check"]).ok().says("schedules.nightly");
    let worker = folder.start(&["work"]).started();
    let all = folder.until("the schedule", &["schedules"], |page| !items(page).is_empty());
    assert_eq!(
        (&all["items"][0]["name"], &all["items"][0]["configured"]),
        (&"config.nightly".into(), &true.into())
    );
    worker.stop();
    let removed = folder.quell(&["schedules", "remove", "config.nightly"]).ok();
    removed.complains("comes back with the next start of a worker");
}
