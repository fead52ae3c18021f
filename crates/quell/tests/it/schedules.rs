//! Events by the calendar: once for all workers, and those of the configuration kept in step with it.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell::clock::{Chance, SteppedTime};
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::quell_core::event::{QueueName, Tenant};
use quell::quell_core::store::Store;
use quell::worker::OwnHandler;
use quell::{AppliedSchedules, Engine, Run, WorkerOptions, from_fn};

use crate::support::{File, Notes, TestStore, pass, start, until};

const HOURLY: &str = "[queues.report]\nwindow = \"none\"\n\
                      [schedules.hourly]\ncron = \"0 * * * *\"\nqueue = \"report\"\nkey = \"all\"\n\
                      payload = { kind = \"hourly\" }\n";

fn over(store: Arc<dyn Store>, text: Option<&str>) -> Engine {
    let env = BTreeMap::new();
    let config =
        text.map(|text| (Config::parse(text, "quell.toml").unwrap(), SourceText::new("quell.toml", text)));
    let settings = Settings::resolve(SettingsInput { config, env: &env, flags: Flags::default() }).unwrap();
    assert_eq!(settings.warnings, Vec::<String>::new());
    Engine::with_parts(store, settings, Arc::new(SteppedTime::new()), Arc::new(Chance::seeded(1)))
}

/// What the handler of `report` has seen: one line per event.
fn noting(notes: &Arc<Notes<String>>) -> WorkerOptions {
    let notes = notes.clone();
    let handler = Arc::new(from_fn(move |run: Run| {
        run.events().iter().for_each(|event| notes.add(format!("{} {}", event.id, event.payload.as_str())));
        async {}
    }));
    let report = QueueName::new("report").unwrap();
    let handlers = BTreeMap::from([(report, OwnHandler { handler, time_limit: None })]);
    WorkerOptions { handlers, ..WorkerOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_once_whatever_the_number_of_workers() {
    let (store, notes) = (TestStore::new(), Notes::new());
    let engines = [over(store.clone(), Some(HOURLY)), over(store.clone(), Some(HOURLY))];
    let options = noting(&notes);
    let workers: Vec<_> = engines.iter().map(|engine| start(engine, &options)).collect();
    pass(3 * 3_600_000).await;
    let seen = notes.all();
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(
        seen[0], "schedule/config.hourly/2023-11-14T23:00:00.000Z {\"kind\":\"hourly\"}",
        "the store's clock stands at 22:13 when it begins"
    );
    for worker in workers {
        worker.stop().await;
    }
    // After downtime only the latest missed fire runs.
    store.jump(Duration::from_secs(5 * 3_600));
    let worker = start(&engines[0], &options);
    pass(1_000).await;
    assert_eq!(notes.len(), 4);
    assert!(notes.all()[3].contains("2023-11-15T06:00"), "{:?}", notes.all());
    worker.stop().await;
}

async fn names(engine: &Engine) -> Vec<String> {
    engine.schedules().await.unwrap().into_iter().map(|row| row.schedule.name.to_string()).collect()
}

async fn the_store_follows_the_file(store: Arc<dyn Store>) {
    let two =
        format!("{HOURLY}[schedules.nightly]\ncron = \"@daily\"\nqueue = \"report\"\nkey = \"night\"\n");
    let engine = over(store.clone(), Some(&two));
    assert_eq!(
        engine.apply_schedules().await.unwrap(),
        AppliedSchedules { put: 2, unchanged: 0, removed: 0 }
    );
    let before = engine.schedules().await.unwrap();
    assert_eq!(
        engine.apply_schedules().await.unwrap(),
        AppliedSchedules { put: 0, unchanged: 2, removed: 0 }
    );
    assert_eq!(engine.schedules().await.unwrap(), before, "an unchanged one keeps its place in time");

    // One made by hand stays, whatever the files say; the names of the configuration are not open to others.
    let mut own = engine.settings().schedules.clone().unwrap().remove(0);
    own.name = QueueName::new("by-hand").unwrap();
    assert!(engine.put_schedule(own.clone(), "ada").await.unwrap());
    assert!(!engine.put_schedule(own.clone(), "ada").await.unwrap());
    own.name = QueueName::new("config.sneaky").unwrap();
    let refused = engine.put_schedule(own, "ada").await.unwrap_err().to_string();
    assert!(refused.contains("belongs to the configuration"), "{refused}");

    // A later file without the nightly one.
    let later = over(store.clone(), Some(HOURLY));
    assert_eq!(later.apply_schedules().await.unwrap(), AppliedSchedules { put: 0, unchanged: 1, removed: 1 });
    assert_eq!(names(&later).await, ["by-hand", "config.hourly"]);
    // A process without a file leaves everything as it is.
    assert_eq!(over(store.clone(), None).apply_schedules().await.unwrap(), AppliedSchedules::default());
    assert_eq!(names(&later).await.len(), 2);
    assert!(later.remove_schedule(Tenant::none(), "by-hand", "ada").await.unwrap());
    assert!(!later.remove_schedule(Tenant::none(), "by-hand", "ada").await.unwrap());
    // A file without any.
    let none = over(store, Some("[queues.report]\n"));
    assert_eq!(none.apply_schedules().await.unwrap().removed, 1);
    assert!(names(&none).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_stores_configured_schedules_follow_the_file_and_no_others() {
    the_store_follows_the_file(TestStore::new()).await;
}

#[tokio::test]
async fn the_stores_configured_schedules_follow_the_file_on_sqlite() {
    let file = File::new();
    the_store_follows_the_file(file.open()).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_puts_the_schedules_as_soon_as_the_store_takes_them() {
    let (store, notes) = (TestStore::new(), Notes::new());
    let engine = over(store.clone(), Some(HOURLY));
    store.set_down(&["control", "claim", "sweep"]);
    let worker = start(&engine, &noting(&notes));
    pass(20_000).await;
    assert!(names(&engine).await.is_empty());
    store.set_down(&[]);
    until("they are there", async || names(&engine).await == ["config.hourly"]).await;
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn until_idle_does_not_wait_for_the_next_fire_but_for_delayed_events() {
    let (store, notes) = (TestStore::new(), Notes::new());
    let engine = over(store.clone(), Some(HOURLY));
    engine.apply_schedules().await.unwrap();
    engine.prepare("report", "k", serde_json::json!(1)).delay(Duration::from_secs(60)).send().await.unwrap();
    let options = WorkerOptions { until_idle: true, ..noting(&notes) };
    let worker = start(&engine, &options);
    let report = tokio::time::timeout(Duration::from_secs(120), worker.task).await.unwrap().unwrap();
    assert_eq!((report.settled, notes.len()), (1, 1));
}
