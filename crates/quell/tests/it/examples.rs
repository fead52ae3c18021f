//! The examples, run as they stand, over a SQLite file.

use std::sync::Mutex;

#[path = "../../examples/gate.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod gate;
#[path = "../../examples/graceful_shutdown.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod graceful_shutdown;
#[path = "../../examples/many_workers.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod many_workers;
#[path = "../../examples/steps.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program; only its function is used here")]
mod steps;

fn store(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("example.db").display())
}

#[test]
fn the_first_program_of_the_readme_prints_one_batch_of_three_events() {
    let readme = include_str!("../../../../README.md");
    let program = include_str!("../../examples/hello.rs");
    let (_, code) = program.split_once("\n\n").unwrap();
    assert!(readme.contains(code), "the README shows another program than examples/hello.rs");
    assert_eq!(said_by("hello", &[]), "customer-7 sent 3 messages\n");
}

#[test]
fn the_first_handler_of_the_guide_answers_a_burst_once() {
    let said = said_by("first_handler", &["hi", "are you there?"]);
    assert_eq!(said, "customer-7 you said: hi, are you there?\n");
}

/// What an example prints, run in a folder of its own.
fn said_by(name: &str, args: &[&str]) -> String {
    let beside = std::env::current_exe().expect("a test has a path");
    let target = beside.parent().and_then(|deps| deps.parent()).expect("it lies in the folder of the build");
    let program = target.join("examples").join(name);
    // A run of all tests has built it, with the features of the whole workspace. Only alone is it built here: with those of
    // one package cargo would compile half of the workspace again, and once more for whoever comes next.
    if !program.exists() {
        let mut cargo = std::process::Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "quell", "--example", name]);
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo starts");
        assert!(built.success(), "{name} is not built");
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = std::process::Command::new(program);
    let said = command.args(args).current_dir(folder.path()).output().expect("it starts");
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).expect("it prints text")
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

#[tokio::test]
async fn steps_ask_the_model_once_and_send_once() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    steps::steps(&store(&folder), |line| SAID.lock().unwrap().push(line)).await.unwrap();
    let said = SAID.lock().unwrap();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0], "attempt 1 asks the model");
    assert!(said[1].starts_with("attempt 2 sends 42 under the key run_"), "{said:?}");
}

#[tokio::test]
async fn the_gate_gives_one_answer_to_both_messages() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    gate::gate(&store(&folder), |line| SAID.lock().unwrap().push(line)).await.unwrap();
    let said = SAID.lock().unwrap();
    let story = [
        "thinking about 1 messages",
        "out of date: starting over",
        "thinking about 2 messages",
        "one answer to 2 messages",
    ];
    assert_eq!(*said, story);
}
