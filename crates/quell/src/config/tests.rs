//! Promises of the configuration as a whole: precedence, checks over several values, and what `quell check` shows.
//! Those of the policies of runs and of schedules are in `policy_tests.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quell_core::event::QueueName;
use quell_core::window::{Window, WindowPolicy};

use super::*;

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn resolve(text: Option<&str>, vars: &[(&str, &str)], flags: Flags) -> Result<Settings, String> {
    let config = match text {
        Some(text) => {
            let config = Config::parse(text, "quell.toml").map_err(|e| e.to_string())?;
            Some((config, SourceText::new("quell.toml", text)))
        }
        None => None,
    };
    Settings::resolve(SettingsInput { config, env: &env(vars), flags }).map_err(|e| e.to_string())
}

pub(super) fn settings(text: &str) -> Settings {
    resolve(Some(text), &[], Flags::default()).unwrap()
}

pub(super) fn refused(text: &str) -> String {
    resolve(Some(text), &[], Flags::default()).unwrap_err()
}

fn without_file(vars: &[(&str, &str)]) -> Result<Settings, String> {
    resolve(None, vars, Flags::default())
}

pub(super) fn queue(settings: &Settings, name: &str) -> Arc<QueueSettings> {
    settings.queue(&QueueName::new(name).unwrap()).unwrap()
}

pub(super) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn without_a_file_any_name_is_a_queue_with_the_defaults() {
    let settings = without_file(&[]).unwrap();
    assert_eq!(*queue(&settings, "anything"), QueueSettings::defaults(QueueName::new("anything").unwrap()));
    assert_eq!(settings.store.url.to_string(), "sqlite:./quell.db");
    assert_eq!(settings.store.origin, Origin::Default);
    assert_eq!(settings.listen, LISTEN_DEFAULT);
    assert_eq!(settings.worker, WorkerSettings::default());
    assert_eq!(settings.retention, secs(7 * 86_400));
    assert!(settings.queues.is_empty() && settings.warnings.is_empty());
}

#[test]
fn with_a_file_only_its_queues_exist() {
    let settings = settings("[queues.chat]\n");
    assert!(settings.queue(&QueueName::new("chat").unwrap()).is_some());
    assert!(settings.queue(&QueueName::new("other").unwrap()).is_none());
    assert!(settings.default_queue.is_none());
}

#[test]
fn every_queue_setting_reaches_its_policy() {
    let settings = settings(
        r#"
        retention = "30d"
        [worker]
        concurrency = 8
        id = "w1"
        [queues.chat]
        window = { quiet = "2s", max_wait = "20s" }
        max_events = 100
        max_bytes = "1MiB"
        max_payload = "4MiB"
        max_lane_events = 50
        during_run = "queue"
        retry = { base = "10s", factor = 1.5, cap = "1h", attempts = 3, jitter = 0, with = "same" }
        on_failed = "continue"
        on_error = "retry"
        lease = "90s"
        max_running = 4
        [queues.chat.handler]
        exec = ["./handle", "--fast"]
        timeout = "5m"
        fail_exit = [2]
        retry_exit = [75]
        env = ["API_KEY"]
        "#,
    );
    let chat = queue(&settings, "chat");
    let window = Window::quiet_capped(secs(2), secs(20)).max_events(100).max_bytes(1 << 20);
    assert_eq!(chat.append.window, window);
    assert_eq!((chat.append.payload_bytes, chat.append.lane_events), (4 << 20, 50));
    assert_eq!((chat.run.lease, chat.run.max_attempts, chat.run.max_running), (secs(90), 3, Some(4)),);
    assert_eq!((chat.retry.base, chat.retry.factor, chat.retry.cap), (secs(10), 1.5, secs(3600)));
    assert_eq!((chat.retry.attempts, chat.retry.jitter), (3, 0.0));
    assert_eq!(chat.on_error, OnError::Retry);
    assert_eq!(chat.concurrency, 8, "a queue may use the whole worker unless it says otherwise");
    let exec = ExecSettings {
        timeout: secs(300),
        fail_exit: vec![2],
        retry_exit: Some(vec![75]),
        env: vec!["API_KEY".into()],
        ..ExecSettings::new(["./handle", "--fast"])
    };
    assert_eq!(chat.handler, HandlerSettings::Exec(exec));
    assert_eq!((settings.worker.id.as_deref(), settings.retention), (Some("w1"), secs(30 * 86_400)));
}

#[test]
fn flag_beats_variable_beats_older_name_beats_file_beats_default() {
    let file = "[worker]\nid = \"file\"\nconcurrency = 3\n";
    let id = |vars: &[(&str, &str)]| resolve(Some(file), vars, Flags::default()).unwrap().worker.id.unwrap();
    assert_eq!(id(&[("QUELL_WORKER_ID", "ours"), ("WORKER_ID", "older")]), "ours");
    assert_eq!(id(&[("WORKER_ID", "older")]), "older");
    assert_eq!(id(&[("WORKER_ID", "")]), "file", "an empty variable is not set");
    let flags = || Flags { concurrency: Some(9), ..Flags::default() };
    let both = resolve(Some(file), &[("QUELL_WORKER_CONCURRENCY", "5")], flags()).unwrap();
    assert_eq!(both.worker.concurrency, 9);
    let env = resolve(Some(file), &[("QUELL_WORKER_CONCURRENCY", "5")], Flags::default()).unwrap();
    assert_eq!(env.worker.concurrency, 5);
    assert_eq!(settings(file).worker.concurrency, 3);
}

#[test]
fn the_store_is_chosen_in_the_documented_order() {
    let file = "store = \"sqlite:file.db\"";
    let all =
        [("QUELL_STORE", "sqlite:env.db"), ("DATABASE_URL", "postgres://a"), ("REDIS_URL", "redis://b")];
    let flags = || Flags { store: Some("sqlite:flag.db".into()), ..Flags::default() };
    let chosen = |text, vars: &[_], flags| {
        let settings = resolve(text, vars, flags).unwrap();
        (settings.store.url.to_string(), settings.store.origin)
    };
    assert_eq!(chosen(Some(file), &all, flags()), ("sqlite:flag.db".into(), Origin::Flag("--store")));
    let none = Flags::default;
    assert_eq!(chosen(Some(file), &all, none()), ("sqlite:env.db".into(), Origin::Env("QUELL_STORE")));
    assert_eq!(chosen(Some(file), &all[1..], none()), ("sqlite:file.db".into(), Origin::File { line: 1 }));
    assert_eq!(chosen(None, &all[1..2], none()), ("postgres://a".into(), Origin::Env("DATABASE_URL")));
    assert_eq!(chosen(None, &all[2..], none()), ("redis://b".into(), Origin::Env("REDIS_URL")));
    let both = without_file(&all[1..]).unwrap_err();
    assert!(both.starts_with("DATABASE_URL and REDIS_URL are both set"), "{both}");
    let bad = without_file(&[("DATABASE_URL", "mysql://me:hunter2@db")]).unwrap_err();
    assert!(bad.starts_with("environment variable DATABASE_URL: \"mysql\" is not a kind of store"), "{bad}");
}

#[test]
fn port_replaces_only_the_port() {
    fn listen(text: Option<&str>, vars: &[(&str, &str)]) -> Result<String, String> {
        resolve(text, vars, Flags::default()).map(|settings| settings.listen)
    }
    assert_eq!(listen(None, &[("PORT", "80")]), Ok("127.0.0.1:80".into()));
    assert_eq!(listen(Some("listen = \"[::1]:7717\""), &[("PORT", "80")]), Ok("[::1]:80".into()));
    let both = [("PORT", "80"), ("QUELL_LISTEN", "0.0.0.0:90")];
    assert_eq!(listen(None, &both), Ok("0.0.0.0:90".into()));
    assert!(listen(None, &[("PORT", "http")]).unwrap_err().starts_with("environment variable PORT:"));
    for bad in ["7717", ":7717", "::1:7717", "host:99999", "a b:1"] {
        assert!(listen(Some(&format!("listen = {bad:?}")), &[]).is_err(), "{bad}");
    }
}

#[test]
fn transcripts_debounce_as_the_older_system_did() {
    let window_and_lease = |text, vars: &[_]| {
        resolve(text, vars, Flags::default()).map(|settings| {
            let queue = queue(&settings, "transcripts");
            (queue.append.window.policy, queue.run.lease)
        })
    };
    let fixed = |ms| WindowPolicy::Fixed { wait: Duration::from_millis(ms) };
    let section = Some("[queues.transcripts]\n");
    for text in [None, section] {
        assert_eq!(window_and_lease(text, &[]), Ok((fixed(2_000), secs(60))));
        assert_eq!(window_and_lease(text, &[("DEBOUNCE_SECONDS", "0.5")]), Ok((fixed(500), secs(15))));
        assert_eq!(window_and_lease(text, &[("DEBOUNCE_SECONDS", "0")]), Ok((WindowPolicy::None, secs(60))));
        for bad in ["-1", "two", "nan", "inf", "1e30"] {
            let problem = window_and_lease(text, &[("DEBOUNCE_SECONDS", bad)]).unwrap_err();
            assert!(problem.starts_with("environment variable DEBOUNCE_SECONDS:"), "{problem}");
        }
    }
    let own = Some("[queues.transcripts]\nwindow = { fixed = \"4s\" }\nlease = \"45s\"\n");
    assert_eq!(window_and_lease(own, &[]), Ok((fixed(4_000), secs(45))));
    assert_eq!(window_and_lease(own, &[("DEBOUNCE_SECONDS", "3")]), Ok((fixed(3_000), secs(45))));
    let untouched = without_file(&[("DEBOUNCE_SECONDS", "9")]).unwrap();
    assert_eq!(queue(&untouched, "chat").append.window, Window::default());
}

#[test]
fn collect_keeps_the_lock_time_of_the_older_system() {
    let lease = |text, vars: &[_]| {
        resolve(text, vars, Flags::default()).map(|settings| queue(&settings, "collect").run.lease)
    };
    assert_eq!(lease(None, &[]), Ok(secs(300)));
    assert_eq!(lease(None, &[("JOB_LOCK_TIMEOUT_SECONDS", "120")]), Ok(secs(120)));
    let file = Some("[queues.collect]\nlease = \"10m\"\n");
    assert_eq!(lease(file, &[]), Ok(secs(600)));
    assert_eq!(lease(file, &[("JOB_LOCK_TIMEOUT_SECONDS", "120")]), Ok(secs(120)));
    let zero = lease(None, &[("JOB_LOCK_TIMEOUT_SECONDS", "0")]).unwrap_err();
    assert!(zero.contains("lease = 0s is not between 100ms and 1d"), "{zero}");
}

#[test]
fn impossible_combinations_are_refused_with_place_and_fix() {
    assert_eq!(
        refused("[queues.chat]\nwindow = { quiet = \"5s\", max_wait = \"4s\" }\n"),
        "quell.toml:2:10: max_wait 4s is shorter than quiet 5s; the window could never close by quiet\n \
         2 | window = { quiet = \"5s\", max_wait = \"4s\" }\n   |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n \
         help: make max_wait 5s or longer, or leave it out"
    );
    for (text, message) in [
        ("[worker]\nconcurrency = 0", "2:15: concurrency = 0 is not between 1 and 4096"),
        ("[queues.a]\nconcurrency = -1", "2:15: concurrency = -1 is not between 1 and 4096"),
        ("[queues.a]\nwindow = { fixed = \"0s\" }", "2:10: a fixed window of 0 waits for nothing"),
        ("[queues.a]\nwindow = \"non\"", "2:10: \"non\" is no window"),
        ("[queues.a]\nwindow = {}", "2:10: the window says neither quiet nor fixed"),
        ("[queues.a]\nwindow = { max_wait = \"1s\" }", "2:10: max_wait belongs to a quiet window"),
        ("[queues.a]\nwindow = { quiet = \"1s\", fixed = \"1s\" }", "quiet or fixed, not both"),
        ("[queues.a]\nwindow = { fixed = \"8d\" }", "longer than 7 days"),
        ("[queues.a]\nmax_payload = \"5MiB\"", "2:15: max_payload = 5MiB is not between 1B and 4MiB"),
        ("[queues.a]\nmax_events = 10001", "max_events = 10001 is not between 1 and 10000"),
        ("[queues.a]\nlease = \"10ms\"", "lease = 10ms is not between 100ms and 1d"),
        ("[queues.a]\nretry = { cap = \"30s\" }", "2:17: retry: base 60s is longer than cap 30s"),
        ("[queues.a]\nretry = { base = \"0s\" }", "2:18: retry: base is 0"),
        ("[queues.a]\nretry.attempts = 0", "2:18: attempts = 0 is not between 1 and 1000"),
        ("[queues.a]\nretry.jitter = 1.5", "jitter = 1.5 is not between 0 and 1"),
        ("[queues.a]\nretry.factor = nan", "factor = NaN is not between 1 and 100"),
        ("[queues.a]\nhandler = { exec = [] }", "2:20: the program is missing"),
        ("[queues.a]\nhandler = { timeout = \"1s\" }", "2:11: the handler does not say what to start"),
        ("[queues.a]\nhandler = \"lgo\"", "help: did you mean \"log\"?"),
        ("[queues.a]\nhandler = { exec = [\"x\"], fail_exit = [0] }", "exit codes are 1 to 255"),
        (
            "[queues.a]\nhandler = { exec = [\"x\"], fail_exit = [2], retry_exit = [2] }",
            "exit code 2 cannot mean both",
        ),
        ("[queues.a]\nhandler = { exec = [\"x\"], env = [\"A=1\"] }", "\"A=1\" is not a variable name"),
        ("[queues.a]\non_error = \"fail\"", "2:12: on_error = \"fail\" is not known"),
        ("[queues.\"A b\"]\n", "1:9: queue name \"A b\" is not 1 to 64 characters"),
        ("retention = \"5m\"", "1:13: retention = 5m is not between 1h"),
        ("store = \"postgress://h\"", "1:9: \"postgress\" is not a kind of store"),
        ("worker.id = \"\"", "1:13: the name of a worker is"),
    ] {
        let problem = refused(text);
        assert!(problem.contains(message), "{text}\n{problem}");
        assert!(problem.starts_with("quell.toml:"), "{problem}");
    }
}

#[test]
fn the_handler_flag_is_for_use_without_a_file() {
    let flags = |word: &str| Flags { handler: Some(word.into()), ..Flags::default() };
    let pull = resolve(None, &[], flags("pull")).unwrap();
    assert_eq!(queue(&pull, "any").handler, HandlerSettings::Pull);
    assert_eq!(queue(&pull, "collect").handler, HandlerSettings::Pull);
    let line = pull.explain().into_iter().find(|line| line.setting == "queues.*.handler").unwrap();
    assert_eq!((line.value.as_str(), line.origin), ("pull", Origin::Flag("--handler")));
    assert!(resolve(None, &[], flags("push")).unwrap_err().contains("neither log nor pull"));
    assert!(resolve(Some(""), &[], flags("pull")).unwrap_err().contains("only for use without a"));
    let zero = resolve(None, &[], Flags { concurrency: Some(0), ..Flags::default() }).unwrap_err();
    assert_eq!(zero, "--concurrency: concurrency = 0 is not between 1 and 4096");
}

#[test]
fn every_setting_remembers_where_it_came_from() {
    let text = "store = \"postgres://me:hunter2@db/x\"\n[queues.chat]\nlease = \"90s\"\n";
    let settings = resolve(Some(text), &[("QUELL_WORKER_GRACE", "3s")], Flags::default()).unwrap();
    let lines = settings.explain();
    let line = |name: &str| lines.iter().find(|line| line.setting == name).expect(name);
    assert_eq!(line("store").value, "postgres://me:***@db/x");
    assert_eq!(line("store").origin, Origin::File { line: 1 });
    assert_eq!(line("queues.chat.lease").value, "1m30s");
    assert_eq!(line("queues.chat.lease").origin.to_string(), "file line 3");
    assert_eq!(line("worker.grace").origin.to_string(), "environment QUELL_WORKER_GRACE");
    assert_eq!(line("queues.chat.window").value, "{ quiet = \"1s\", max_wait = \"10s\" }");
    assert_eq!(line("queues.chat.window").origin, Origin::Default);
    assert!(!format!("{settings:?}").contains("hunter2"), "no password in Debug");
}

#[test]
fn without_a_file_check_shows_one_queue_for_all_and_what_differs() {
    let lines = without_file(&[]).unwrap().explain();
    let queues: Vec<_> = lines.iter().filter(|l| !l.setting.starts_with("queues.*.")).collect();
    let names: Vec<_> = queues.iter().filter_map(|l| l.setting.strip_prefix("queues.")).collect();
    assert_eq!(names, ["collect.lease", "transcripts.window", "transcripts.retry.attempts"]);
}

#[test]
fn a_misspelt_variable_is_a_warning_and_not_ignored_in_silence() {
    let warnings =
        without_file(&[("QUELL_STROE", "x"), ("QUELL_TOKEN", "7"), ("QUELL_LOG", "info")]).unwrap();
    assert_eq!(
        warnings.warnings,
        ["the environment variable QUELL_STROE is no setting; did you mean QUELL_STORE?"]
    );
}

#[test]
fn an_unreadable_file_is_named() {
    let missing =
        SourceText::read(std::path::Path::new("no-such-folder/quell.toml")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot read no-such-folder/quell.toml: "), "{missing}");
}

#[test]
fn the_section_of_transcripts_makes_their_queue_which_the_application_handles() {
    let settings = settings("[transcripts]\nroots = [\"~/.claude\"]\nretention = \"90d\"\n");
    let transcripts = settings.transcripts.clone().expect("the section is there");
    assert_eq!(transcripts.roots, [std::path::Path::new("~/.claude")]);
    assert_eq!(transcripts.retention, Some(secs(90 * 24 * 3600)));
    let queue = queue(&settings, "transcripts");
    assert_eq!((&queue.handler, queue.run.lease), (&HandlerSettings::App, secs(60)));
    assert!(queue.retry.attempts > 10, "a transcript that is not there yet is looked for ten times");
    let without = self::settings("[queues.other]\n");
    assert_eq!(without.queue(&QueueName::new("transcripts").unwrap()), None);
    let own = self::settings("[transcripts]\n[queues.transcripts]\nhandler = \"pull\"\n");
    assert_eq!(self::queue(&own, "transcripts").handler, HandlerSettings::Pull);
}

#[test]
fn what_is_wrong_with_transcripts_is_told() {
    for (text, problem) in [
        ("[transcripts]\nroots = [\"here\"]\n", "neither an absolute path"),
        ("[transcripts]\nretention = \"1s\"\n", "not between 1h"),
        ("[transcripts]\nrots = []\n", "rots"),
    ] {
        let error = refused(text);
        assert!(error.contains(problem), "{error}");
    }
}
