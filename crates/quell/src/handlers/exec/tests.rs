//! Promises of the `exec` handler, tried with real programs.

use std::path::Path;

use quell_core::outcome::Verdict;

use super::*;
use crate::handler::sample_run;

/// Long enough for a loaded machine, short enough to notice a hang.
const PATIENCE: Duration = Duration::from_secs(30);

fn shell(script: &str) -> ExecSettings {
    ExecSettings::new(["/bin/sh", "-c", script])
}

fn exec(settings: ExecSettings) -> Exec {
    Exec::new(settings, &crate::config::Env::from_process())
}

async fn outcome_of(settings: ExecSettings) -> Outcome {
    let run = sample_run(r#"{"text":"hello"}"#);
    let whole = timeout(PATIENCE, exec(settings).handle(&run)).await.expect("the handler ends");
    assert!(whole.report.is_some(), "every attempt tells what it started");
    Outcome { report: None, ..whole }
}

async fn script(text: &str) -> Outcome {
    outcome_of(shell(text)).await
}

/// Waits until `ready` gives something, without ever sleeping longer than a moment.
async fn until<T>(mut ready: impl FnMut() -> Option<T>) -> T {
    let mut moments = tokio::time::interval(Duration::from_millis(5));
    let wait = async {
        loop {
            moments.tick().await;
            if let Some(value) = ready() {
                return value;
            }
        }
    };
    timeout(PATIENCE, wait).await.expect("the condition becomes true")
}

/// The process id that a script has written as a whole line.
async fn pid_in(file: &Path) -> u32 {
    until(|| std::fs::read_to_string(file).ok().filter(|t| t.ends_with('\n'))?.trim().parse().ok()).await
}

/// True once the process has ended; a zombie that nobody has collected yet has.
fn is_dead(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

#[tokio::test]
async fn exit_codes_decide() {
    assert_eq!(script("cat >/dev/null").await, Outcome::succeeded());
    assert_eq!(script("exit 65").await, Outcome::failed("exit code 65"));
    assert_eq!(script("exit 1").await, Outcome::retry("exit code 1"));
    assert_eq!(script("kill -9 $$").await, Outcome::retry("killed by signal 9"));
}

#[tokio::test]
async fn configured_exit_codes_replace_the_defaults() {
    let fails = |code: &str| ExecSettings { fail_exit: vec![2, 3], ..shell(&format!("exit {code}")) };
    assert_eq!(outcome_of(fails("3")).await.verdict, Verdict::Failed);
    assert_eq!(outcome_of(fails("65")).await.verdict, Verdict::Retry { after: None });
    let retries = |code: &str| ExecSettings {
        fail_exit: vec![],
        retry_exit: Some(vec![75]),
        ..shell(&format!("exit {code}"))
    };
    assert_eq!(outcome_of(retries("75")).await.verdict, Verdict::Retry { after: None });
    assert_eq!(outcome_of(retries("1")).await.verdict, Verdict::Failed);
    assert_eq!(outcome_of(retries("0")).await.verdict, Verdict::Succeeded);
}

#[tokio::test]
async fn the_program_reads_the_envelope_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seen");
    let run = sample_run("{\"b\":1.0, \"a\":\"$(touch x); `id`\"}");
    let settings = ExecSettings::new(["/bin/sh", "-c", "cat > \"$0\"", file.to_str().unwrap()]);
    assert_eq!(exec(settings).handle(&run).await.verdict, Verdict::Succeeded);
    assert_eq!(std::fs::read_to_string(file).unwrap(), run.envelope().unwrap() + "\n");
}

#[tokio::test]
async fn the_environment_is_an_allow_list_and_the_run() {
    let env = [
        ("PATH", "/usr/bin:/bin"),
        ("LC_ALL", "C"),
        ("PASSED_ON", "yes"),
        ("QUELL_STORE", "postgres://me:canary@db/x"),
        ("AWS_SECRET", "canary"),
        ("QUELL_TOKEN", "from outside"),
    ];
    let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let settings = ExecSettings {
        env: vec!["PASSED_ON".into(), "QUELL_TOKEN".into(), "NOT_SET".into()],
        ..shell("env | sort >&2; exit 1")
    };
    let text = Exec::new(settings, &env).handle(&sample_run("{}")).await.error.unwrap();
    for line in [
        "LC_ALL=C",
        "PASSED_ON=yes",
        "PATH=/usr/bin:/bin",
        "QUELL_ATTEMPT=1",
        "QUELL_EVENTS=2",
        "QUELL_FIRED_BY=quiet",
        "QUELL_KEY=49 171/5",
        "QUELL_QUEUE=chat",
        "QUELL_RUN_ID=run_2m_9f",
        "QUELL_TENANT=acme",
        "QUELL_TOKEN=17",
    ] {
        assert!(text.lines().any(|l| l.trim_start_matches("exit code 1: ") == line), "{line} in {text}");
    }
    assert!(!text.contains("canary") && !text.contains("NOT_SET"), "{text}");
    assert!(text.contains("\nTRACEPARENT=00-"), "where nobody began a trace, one is begun: {text}");
}

#[tokio::test]
async fn a_missing_program_is_tried_again_with_a_clear_text() {
    let outcome = outcome_of(ExecSettings::new(["./no-such-program"])).await;
    assert_eq!(outcome.verdict, Verdict::Retry { after: None });
    let text = outcome.error.unwrap();
    assert!(text.starts_with("cannot start \"./no-such-program\": No such file"), "{text}");
}

#[tokio::test]
async fn the_end_of_stderr_is_the_error_within_its_bound() {
    let outcome = script("yes filler | head -c 300000 >&2; printf 'a\\000b the cause\\n' >&2; exit 65").await;
    let text = outcome.error.unwrap();
    assert!(text.starts_with("exit code 65: …"), "{}", &text[..40]);
    assert!(text.ends_with("a\u{fffd}b the cause"), "{}", &text[text.len() - 40..]);
    assert!(text.len() <= limits::ERROR_BYTES_MAX);
}

#[tokio::test]
async fn a_report_is_the_last_line_of_stdout_after_any_amount_of_output() {
    let outcome = script(
        r#"yes | head -c 3000000; echo; echo '{"result":{"ok":1},"usage":{"tokens":7,"bad":"x"},"retry_after_ms":9}'"#,
    )
    .await;
    assert_eq!(
        outcome,
        Outcome::succeeded().with_result(serde_json::json!({"ok":1})).with_usage("tokens", 7.0)
    );
    let later = script(r#"echo '{"retry_after_ms":1500}'; echo busy >&2; exit 75"#).await;
    assert_eq!(later, Outcome::retry_after(Duration::from_millis(1500), "exit code 75: busy"));
    for not_a_report in ["echo done", "echo '[1]'", "echo '{\"other\":1}'", "echo '{\"usage\":3}'", "true"] {
        assert_eq!(script(not_a_report).await, Outcome::succeeded(), "{not_a_report}");
    }
}

#[tokio::test]
async fn a_program_that_never_reads_its_input_neither_hangs_nor_fails() {
    let large = format!("\"{}\"", "x".repeat(500_000));
    for text in ["exit 0", "exec <&-; exit 0"] {
        let run = sample_run(&large);
        let outcome = timeout(PATIENCE, exec(shell(text)).handle(&run)).await.expect("the handler ends");
        assert_eq!(outcome.verdict, Verdict::Succeeded);
    }
}

#[tokio::test]
async fn the_time_limit_ends_the_program_and_says_so() {
    let settings =
        ExecSettings { timeout: Duration::from_millis(50), ..shell("echo slow >&2; exec sleep 1000") };
    let outcome = outcome_of(settings).await;
    assert_eq!(outcome.verdict, Verdict::Retry { after: None });
    assert!(outcome.error.unwrap().starts_with("the time limit of 50ms passed"));
}

#[tokio::test]
async fn an_exit_of_zero_after_our_signal_is_not_a_success() {
    let text = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    let settings = ExecSettings::new(["/bin/sh", "-c", text]);
    let outcome = outcome_of(ExecSettings { timeout: Duration::from_millis(300), ..settings }).await;
    assert_eq!(outcome.verdict, Verdict::Retry { after: None });
}

#[tokio::test]
async fn a_stopping_worker_lets_the_program_finish() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, go_on) = (folder.path().join("pid"), folder.path().join("go"));
    let text = "echo $$ > \"$0\"; until [ -e \"$1\" ]; do sleep 0.01; done";
    let settings = ["/bin/sh", "-c", text, begun.to_str().unwrap(), go_on.to_str().unwrap()];
    let handler = exec(ExecSettings::new(settings));
    let run = sample_run("{}");
    let stop = async {
        pid_in(&begun).await;
        run.stopping().cancel();
        std::fs::write(&go_on, "").unwrap();
    };
    let (outcome, ()) = timeout(PATIENCE, async { tokio::join!(handler.handle(&run), stop) }).await.unwrap();
    assert_eq!(outcome.verdict, Verdict::Succeeded);
}

#[cfg(target_os = "linux")]
mod groups {
    use super::*;

    #[tokio::test]
    async fn a_program_that_ignores_sigterm_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let text = "trap '' TERM; sleep 1000 & echo $! > \"$0\"; while :; do wait; done";
        let settings = ExecSettings::new(["/bin/sh", "-c", text, file.to_str().unwrap()]);
        let outcome = outcome_of(ExecSettings { timeout: Duration::from_millis(500), ..settings }).await;
        assert_eq!(outcome.verdict, Verdict::Retry { after: None });
        let pid = pid_in(&file).await;
        until(|| is_dead(pid).then_some(())).await;
    }

    #[tokio::test]
    async fn a_dropped_handler_takes_grandchildren_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let text = "sleep 1000 & echo $! > \"$0\"; wait";
        let handler = exec(ExecSettings::new(["/bin/sh", "-c", text, file.to_str().unwrap()]));
        let run = sample_run("{}");
        let pid = tokio::select! {
            _ = handler.handle(&run) => panic!("the program waits for its child"),
            pid = pid_in(&file) => pid,
        };
        until(|| is_dead(pid).then_some(())).await;
    }

    #[tokio::test]
    async fn what_a_finished_program_leaves_behind_is_ended_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        // The child left behind holds stdout open, which would otherwise keep the handler reading.
        let text = "sleep 1000 & echo $! > \"$0\"; echo '{\"result\":1}'";
        let settings = ExecSettings::new(["/bin/sh", "-c", text, file.to_str().unwrap()]);
        let outcome = outcome_of(ExecSettings { timeout: PATIENCE * 2, ..settings }).await;
        assert_eq!(outcome, Outcome::succeeded().with_result(serde_json::json!(1)));
        let pid = pid_in(&file).await;
        until(|| is_dead(pid).then_some(())).await;
    }
}

#[tokio::test]
async fn an_attempt_tells_what_was_started_and_how_it_ended_but_no_argument() {
    let run = sample_run(r#"{"text":"hello"}"#);
    let settings = shell("echo done; echo 'disk is slow' >&2; exit 3");
    let outcome = timeout(PATIENCE, exec(settings).handle(&run)).await.expect("the handler ends");
    let report = outcome.report.expect("an attempt that was made tells of it");
    assert_eq!(report.request.as_deref(), Some("/bin/sh with 2 arguments"));
    assert_eq!((report.exit_code, report.status), (Some(3), None));
    assert_eq!(report.response.as_deref(), Some("done"));
    assert_eq!(report.stderr.as_deref(), Some("disk is slow"));

    let outcome = exec(ExecSettings::new(["/no/such/program"])).handle(&run).await;
    let report = outcome.report.expect("also when nothing could be started");
    assert_eq!((report.request.as_deref(), report.exit_code), (Some("/no/such/program"), None));
}

#[tokio::test]
async fn a_program_that_is_ended_at_its_time_limit_has_no_exit_code_but_its_last_words() {
    let settings =
        ExecSettings { timeout: Duration::from_millis(300), ..shell("echo almost >&2; exec sleep 60") };
    let run = sample_run("{}");
    let outcome = timeout(PATIENCE, exec(settings).handle(&run)).await.expect("the handler ends");
    let report = outcome.report.expect("an attempt that was made tells of it");
    assert_eq!((report.exit_code, report.stderr.as_deref()), (None, Some("almost")));
}
