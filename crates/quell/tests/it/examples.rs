//! The examples, run as they stand, over a SQLite file.

use std::sync::Mutex;

#[path = "../../examples/graceful_shutdown.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod graceful_shutdown;
#[path = "../../examples/many_workers.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod many_workers;

fn store(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("example.db").display())
}

#[test]
fn the_first_program_of_the_readme_prints_one_batch_of_three_events() {
    let readme = include_str!("../../../../README.md");
    let program = include_str!("../../examples/hello.rs");
    let (_, code) = program.split_once("\n\n").unwrap();
    assert!(readme.contains(code), "the README shows another program than examples/hello.rs");
    // Built here, so that this test also stands alone; a run of all tests has built it already.
    let build = ["build", "--quiet", "--package", "quell", "--example", "hello"];
    let cargo = std::process::Command::new(env!("CARGO"))
        .args(build)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(cargo.unwrap().success());
    let beside = std::env::current_exe().unwrap();
    let hello = beside.parent().and_then(|deps| deps.parent()).unwrap().join("examples/hello");
    let folder = tempfile::tempdir().unwrap();
    let said = std::process::Command::new(hello).current_dir(folder.path()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(String::from_utf8_lossy(&said.stdout), "customer-7 sent 3 messages\n");
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
