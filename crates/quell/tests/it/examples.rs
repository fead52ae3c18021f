//! The examples, run as they stand, over a SQLite file.

use std::sync::Mutex;

#[path = "../../examples/graceful_shutdown.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod graceful_shutdown;
#[path = "../../examples/hello.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod hello;
#[path = "../../examples/many_workers.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod many_workers;

fn store(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("example.db").display())
}

#[tokio::test]
async fn hello_prints_one_batch_of_three_events() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    hello::hello(&store(&folder), |line| SAID.lock().unwrap().push(line)).await.unwrap();
    assert_eq!(*SAID.lock().unwrap(), ["customer-7 sent 3 messages: hi / are you there? / hello?"]);
}

#[tokio::test]
async fn many_workers_handle_every_key_once() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let say = |line| SAID.lock().unwrap().push(line);
    many_workers::many_workers(&store(&folder), 3, 30, say).await.unwrap();
    let said = SAID.lock().unwrap();
    for key in 0..30 {
        let text = format!(" handled customer-{key} under");
        assert_eq!(said.iter().filter(|line| line.contains(&text)).count(), 1, "customer-{key}");
    }
}

#[tokio::test]
async fn graceful_shutdown_loses_nothing() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let say = |line| SAID.lock().unwrap().push(line);
    graceful_shutdown::graceful_shutdown(&store(&folder), say).await.unwrap();
    let said = SAID.lock().unwrap();
    assert!(said.contains(&"polite is succeeded after 1 counted attempts".to_owned()), "{said:?}");
    assert!(said.contains(&"stubborn is pending after 0 counted attempts".to_owned()), "{said:?}");
}
