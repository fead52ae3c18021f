//! A configuration is in force or refused with its place and the fix.

use crate::support::Folder;

#[test]
fn a_bad_configuration_names_file_line_and_fix_with_every_command() {
    let folder = Folder::with_config("store = \"sqlite:quell.db\"\n[queues.chat]\nwindwo = \"none\"\n");
    for args in
        [["check"].as_slice(), &["serve"], &["work"], &["send", "chat", "a", "1"], &["lanes"], &["doctor"]]
    {
        let answer = folder.quell(args).exits(2).complains("quell.toml:3:1: unknown setting `windwo`");
        answer.complains("did you mean `window`?");
    }
    assert!(!folder.path("quell.db").exists());
}

#[test]
fn a_value_of_flag_or_environment_is_refused_by_its_name() {
    let folder = Folder::new();
    folder
        .quell(&["check", "--store", "mysql://x"])
        .exits(2)
        .complains("--store: \"mysql\" is not a kind of store");
    folder.quell(&["serve", "--concurrency", "0"]).exits(2).complains("--concurrency");
    folder.quell(&["serve", "--handler", "magic"]).exits(2).complains("--handler");
    folder.quell(&["serve", "--grace", "soon"]).exits(2).complains("is not a duration");
    let mut command = folder.command(&["check"]);
    let output = command.env("QUELL_WORKER_GRACE", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("environment variable QUELL_WORKER_GRACE"));
    folder.quell(&["check", "--config", "other.toml"]).exits(2).complains("cannot read other.toml");
}

#[test]
fn the_store_is_chosen_in_the_documented_order() {
    let folder = Folder::with_config("store = \"sqlite:file.db\"\n[queues.chat]\n");
    folder.quell(&["check"]).ok().says("sqlite:file.db").says("quell.toml line 1");
    let mut command = folder.command(&["check"]);
    let output = command.env("QUELL_STORE", "sqlite:env.db").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("sqlite:env.db") && text.contains("environment QUELL_STORE"), "{text}");
    folder.quell(&["check", "--store", "sqlite:flag.db"]).ok().says("sqlite:flag.db").says("--store");
    let both = folder
        .command(&["check", "--config", "/dev/null"])
        .env("DATABASE_URL", "postgres://h/x")
        .env("REDIS_URL", "redis://h")
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&both.stderr).contains("both set"));
}

#[test]
fn a_misspelt_variable_is_pointed_out() {
    let folder = Folder::new();
    let output = folder.command(&["check"]).env("QUELL_STROE", "x").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean QUELL_STORE?"));
}

#[test]
fn a_worker_is_not_started_for_a_queue_that_nobody_knows() {
    let folder = Folder::with_config("[queues.chat]\n[queues.far]\nhandler = \"pull\"\n");
    folder.quell(&["work", "--queue", "caht"]).exits(3).complains("unknown queue \"caht\"");
    folder.quell(&["work", "--queue", "far"]).exits(2).complains("has no handler in this process");
    folder.quell(&["work", "--until-idle"]).ok();
}

#[test]
fn logs_have_the_level_and_form_that_was_asked_for() {
    let folder = Folder::with_config("[queues.chat]\nwindow = \"none\"\n");
    folder.send("chat", "ada", "1");
    let answer = folder.quell(&["work", "--until-idle", "--log-format", "json"]).ok();
    let lines: Vec<serde_json::Value> = answer
        .err
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        lines.iter().any(|line| line["message"] == "startup.swept" && line["count"] == 0),
        "{}",
        answer.err
    );
    assert!(
        lines.iter().any(|line| line["message"] == "batch.logged" && line["key"] == "ada"),
        "{}",
        answer.err
    );
    assert!(answer.out.is_empty(), "batches go to the log then: {}", answer.out);
    let quiet = folder.quell(&["work", "--until-idle", "--log", "error"]).ok();
    assert!(!quiet.err.contains("startup.swept"), "{}", quiet.err);
    let loud = folder.command(&["lanes"]).env("QUELL_LOG", "trace").output().unwrap();
    assert_eq!(loud.status.code(), Some(0));
}

#[test]
fn a_secret_that_is_not_there_is_told_by_check_and_ends_the_start_of_a_worker() {
    let folder = Folder::with_config(
        "[queues.chat]\nhandler = { http = \"http://127.0.0.1:8000/\", secret_file = \"push.secret\" }\n",
    );
    let problem = "the secret from file push.secret cannot be read";
    folder.quell(&["check"]).ok().says("queues.chat.handler.secret_file").complains(problem);
    folder.quell(&["work", "--until-idle"]).exits(2).complains("queue \"chat\"").complains(problem);
    let secret = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDE=";
    std::fs::write(folder.path("push.secret"), secret).unwrap();
    folder.quell(&["work", "--until-idle"]).ok();
}
