//! What somebody meets who has just installed it.

use crate::support::Folder;

#[test]
fn without_arguments_it_says_what_it_is_and_what_to_try() {
    let answer = Folder::new().quell(&[]).ok();
    assert!(answer.err.is_empty(), "{}", answer.err);
    let answer =
        answer.says("one orderly run per key").says("quell demo").says("quell serve").says("quell send");
    answer.says("docs/guide/first-steps.md");
}

#[test]
fn help_knows_every_command_and_the_exit_codes() {
    let folder = Folder::new();
    let mut help = folder.quell(&["help"]).ok();
    for word in
        ["init", "serve", "work", "send", "lanes", "lane", "runs", "run", "dead", "audit", "flush", "pause"]
    {
        help = help.says(&format!("\n  {word} "));
        folder.quell(&["help", word]).ok().says("Usage: quell");
    }
    for word in [
        "resume",
        "cancel",
        "redrive",
        "purge",
        "schedules",
        "check",
        "doctor",
        "backup",
        "restore",
        "demo",
        "bench",
        "completions",
    ] {
        help = help.says(&format!("\n  {word} "));
    }
    let help = help.says("3  not found").says("5  the store is not available");
    for hidden in ["demo-worker", "bench-worker"] {
        assert!(!help.out.contains(hidden), "{}", help.out);
    }
    folder.quell(&["--version"]).ok().says("quell 0.");
}

#[test]
fn a_wrong_command_line_is_answered_on_stderr_with_2() {
    let folder = Folder::new();
    folder.quell(&["sned"]).exits(2).complains("send");
    folder.quell(&["send", "chat"]).exits(2).complains("KEY");
    folder.quell(&["lanes", "--limit", "0"]).exits(2).complains("1..=1000");
    folder.quell(&["runs", "--state", "done"]).exits(2).complains("pending, running, retryable, succeeded");
    folder.quell(&["lanes", "--log", "quell=loud"]).exits(2).complains("is not a log level");
    assert!(!folder.path("quell.db").exists(), "a mistake makes no store");
}

#[test]
fn init_writes_a_file_that_check_accepts_and_never_overwrites_one() {
    let folder = Folder::new();
    folder.quell(&["init"]).ok().says("wrote quell.toml").complains("quell check");
    folder.quell(&["check"]).ok().says("queues.example.window").complains("quell.toml is fine");
    folder.write("quell.toml", "# mine\n");
    folder.quell(&["init"]).exits(4).complains("already exists").complains("--force");
    assert_eq!(folder.read("quell.toml"), "# mine\n");
    folder.quell(&["init", "--force"]).ok();
    assert!(folder.read("quell.toml").contains("[queues.example]"));
}

#[test]
fn what_another_process_sends_is_shown_by_serve() {
    let folder = Folder::new();
    let mut serve = folder.start(&["serve"]);
    let start = serve.line("works on");
    assert!(start.contains("sqlite:./quell.db (default), durable"), "{start}");
    serve.line("any name: quiet 1s up to 10s, handler log");
    serve.line(r#"quell send hello world '{"text":"hi"}'"#);
    serve.line("startup.swept");
    folder.quell(&["send", "hello", "world", r#"{"text":"hi"}"#]).ok().says("stored evt_").says("due in");
    folder.send("hello", "world", r#"{"text":"again"}"#);
    let line = serve.line("hello/world: ");
    assert!(line.contains("2 events, fired by quiet, run_") && line.ends_with("attempt 1"), "{line}");
    let lines = serve.stop();
    assert!(!lines.iter().any(|line| line.text().contains("again")), "payloads stay out: {lines:#?}");
}

#[test]
fn payloads_are_shown_when_asked_for() {
    let folder = Folder::with_config("[queues.hello]\nwindow = \"none\"\n");
    let mut serve = folder.start(&["serve", "--show-payloads"]).started();
    folder.send("hello", "world", r#"{"text":"hi"}"#);
    serve.line("hello/world: 1 event, fired by none");
    assert!(serve.line("text").ends_with(r#"{"text":"hi"}"#));
    serve.stop();
}
