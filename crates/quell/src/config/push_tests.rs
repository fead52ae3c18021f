//! Every setting about what is sent out: services as handlers, services that are told, and the operator's exceptions.

use quell_core::lifecycle::RunState;
use quell_core::window::WindowPolicy;
use quell_fetch::Allow;

use super::tests::{queue, refused, secs, settings};
use super::*;

fn pushed(text: &str) -> PushSettings {
    match queue(&settings(&format!("[queues.a]\n{text}\n")), "a").handler.clone() {
        HandlerSettings::Http(push) => push,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_service_has_a_url_a_time_limit_and_secrets() {
    let least = pushed("handler = { http = \"https://app.example.com/quell\" }");
    assert_eq!(least, PushSettings::new("https://app.example.com/quell"));
    assert_eq!(least.timeout, secs(30));
    let whole = pushed(
        "handler = { http = \"https://app.example.com/\", timeout = \"5s\", secret_file = [\"new.secret\", \"old.secret\"], \
         secret_env = \"PUSH_SECRET\" }",
    );
    let secrets = vec![
        SecretSource::File("new.secret".into()),
        SecretSource::File("old.secret".into()),
        SecretSource::Env("PUSH_SECRET".into()),
    ];
    assert_eq!(
        whole,
        PushSettings { timeout: secs(5), secrets, ..PushSettings::new("https://app.example.com/") }
    );
}

#[test]
fn impossible_handlers_are_refused_with_place_and_fix() {
    let http = |rest: &str| format!("handler = {{ http = \"https://example.com/\"{rest} }}");
    let url = |url: &str| format!("handler = {{ http = \"{url}\" }}");
    for (text, message) in [
        ("handler = {}".to_owned(), "2:11: the handler does not say what to start or whom to send to"),
        ("handler = {}".into(), "help: write { exec = [\"./program\"] } or { http = \"https://"),
        ("handler = \"http\"".into(), "2:11: there is no handler \"http\""),
        (
            "handler = { exec = [\"x\"], http = \"https://example.com/\" }".into(),
            "2:34: a handler is a program or a service",
        ),
        (http(", fail_exit = [1]"), "2:56: fail_exit belongs to a program (exec)"),
        (http(", retry_exit = [1]"), "retry_exit belongs to a program (exec)"),
        (http(", env = [\"A\"]"), "env belongs to a program (exec)"),
        (
            "handler = { exec = [\"x\"], secret_file = \"s\" }".into(),
            "2:41: secret_file belongs to a service (http)",
        ),
        (
            "handler = { exec = [\"x\"], secret_env = [\"S\"] }".into(),
            "secret_env belongs to a service (http)",
        ),
        (http(", timeout = \"0s\""), "timeout = 0s is not between 1ms and 1d"),
        (http(", secret_env = \"whsec_abc=\""), "the secret itself does not belong into this file"),
        (http(", secret_file = []"), "a name of a file is missing"),
        (http(", secret = \"s\""), "unknown setting `secret`"),
        (url(""), "2:20: not a URL: relative URL without a base"),
        (url("app.example.com/quell"), "2:20: not a URL: relative URL without a base"),
        (url("app.example.com/quell"), "help: write for example \"https://app.example.com/quell\""),
        (url("http://"), "2:20: not a URL: empty host"),
        (url("ftp://example.com/"), "2:20: only http and https are allowed, not ftp"),
        (url("file:///etc/passwd"), "only http and https are allowed, not file"),
        (url("https://me:secret@example.com/"), "2:20: a URL must not carry a user name or a password"),
        (url("https://me:secret@example.com/"), "help: the service knows us by the signature"),
        (url("http://example.com:6379/"), "2:20: port 6379 belongs to another protocol"),
        (url("http://127.0.0.1:5432/"), "port 5432 belongs to another protocol"),
        (url("http://127.0.0.1:5432/"), "help: if it is meant, allow it: [outbound] allow = [\"host:port\"]"),
        (
            url(&format!("https://example.com/{}", "x".repeat(9000))),
            "the URL has 9020 bytes; at most 8192 are allowed",
        ),
    ] {
        let problem = refused(&format!("[queues.a]\n{text}\n"));
        assert!(problem.contains(message), "{text}\n{problem}");
        assert!(problem.starts_with("quell.toml:2:"), "{problem}");
    }
}

#[test]
fn what_the_operator_wrote_is_meant() {
    for url in
        ["http://127.0.0.1:8000/x", "http://localhost:3000/", "https://10.0.0.7/", "http://[::1]:8080/"]
    {
        assert_eq!(pushed(&format!("handler = {{ http = \"{url}\", secret_env = \"S\" }}")).url, url);
    }
    let listed = "[outbound]\nallow = [\"10.0.0.0/8\", \"db.internal:6379\"]\n[queues.a]\n\
                  handler = { http = \"http://db.internal:6379/\", secret_env = \"S\" }\n";
    let listed = settings(listed);
    assert_eq!(listed.outbound, Allow::parse(["10.0.0.0/8", "db.internal:6379"]).unwrap());
    let lines = listed.explain();
    let line = lines.iter().find(|line| line.setting == "outbound.allow").unwrap();
    assert_eq!(
        (line.value.as_str(), line.origin.to_string()),
        ("[\"10.0.0.0/8\", \"db.internal:6379\"]", "file line 2".into())
    );
    let bad = refused("[outbound]\nallow = [\"10.0.0.0/8\", \"app.internal\"]\n");
    assert!(bad.starts_with("quell.toml:2:9: \"app.internal\" cannot be allowed: write host:port"), "{bad}");
    assert!(refused("[outbound]\nalow = []\n").contains("did you mean `allow`?"));
    assert_eq!(settings("[queues.a]\n").outbound, Allow::default());
}

#[test]
fn unsigned_batches_that_leave_this_machine_are_a_warning() {
    let warned = |url: &str, rest: &str| {
        let text = format!(
            "[outbound]\nallow = [\"127.0.0.1:6379\"]\n[queues.a]\nhandler = {{ http = \"{url}\"{rest} }}\n"
        );
        settings(&text).warnings
    };
    assert_eq!(
        warned("https://example.com/in?key=7", ""),
        [
            "queue a: what is sent to https://example.com/in?… is not signed, so the service cannot tell it from a forgery; give \
          secret_file or secret_env"
        ]
    );
    assert_eq!(warned("http://10.0.0.1/", "").len(), 1);
    assert_eq!(warned("https://example.com/", ", secret_env = \"S\"").len(), 0);
    for local in ["http://127.0.0.1:8000/", "http://localhost/", "http://[::1]/", "http://127.0.0.1:6379/"] {
        assert_eq!(warned(local, "").len(), 0, "{local}");
    }
}

#[test]
fn the_query_of_a_url_is_not_shown() {
    let lines = settings(
        "[queues.a]\nhandler = { http = \"https://example.com/in?key=secret\", secret_env = \"S\" }\n",
    )
    .explain();
    let line = lines.iter().find(|line| line.setting == "queues.a.handler.http").unwrap();
    assert_eq!(line.value, "https://example.com/in?…");
    assert!(!lines.iter().any(|line| line.value.contains("secret")));
}

#[test]
fn a_url_that_is_told_makes_a_queue_of_its_own() {
    let told = settings(
        "[queues.orders]\nnotify = { url = \"https://example.com/ended\", on = [\"failed\"], timeout = \"5s\", secret_env = \
         \"S\" }\n[queues.mails]\nnotify = { url = \"http://localhost:8000/\" }\n",
    );
    let own = queue(&told, "notify.orders");
    let push = PushSettings {
        timeout: secs(5),
        secrets: vec![SecretSource::Env("S".into())],
        ..PushSettings::new("https://example.com/ended")
    };
    assert_eq!(own.handler, HandlerSettings::Http(push));
    assert_eq!((own.append.window.policy, &own.run.notify), (WindowPolicy::None, &None));
    let notify = queue(&told, "orders").run.notify.clone().unwrap();
    assert_eq!((notify.queue.as_str(), &notify.on[..]), ("notify.orders", &[RunState::Failed][..]));
    assert_eq!(notify.policy, *own.append);
    assert_eq!(told.queues.len(), 4);
    assert_eq!(told.warnings, Vec::<String>::new());
    let lines = told.explain();
    let line = |name: &str| {
        let line = lines.iter().find(|line| line.setting == name).unwrap();
        (line.value.clone(), line.origin.to_string())
    };
    assert_eq!(
        line("queues.orders.notify"),
        ("{ url = \"https://example.com/ended\", on = [\"failed\"] }".into(), "file line 2".into())
    );
    assert_eq!(line("queues.notify.orders.window"), ("none".into(), "file line 2".into()));
    assert_eq!(
        line("queues.notify.orders.handler.http"),
        ("https://example.com/ended".into(), "file line 2".into())
    );
    assert_eq!(line("queues.notify.mails.handler.timeout"), ("30s".into(), "default".into()));
}

#[test]
fn impossible_notices_are_refused_with_place_and_fix() {
    for (text, message) in [
        (
            "notify = { queue = \"b\", url = \"https://example.com/\" }",
            "2:31: notify tells a queue or a URL, not both",
        ),
        ("notify = { queue = \"b\", timeout = \"5s\" }", "2:35: timeout belongs to notify.url"),
        ("notify = { queue = \"b\", secret_file = \"s\" }", "secret_file belongs to notify.url"),
        ("notify = { queue = \"b\", secret_env = \"S\" }", "secret_env belongs to notify.url"),
        (
            "notify = { on = [\"failed\"] }",
            "help: write notify = { queue = \"…\" } or { url = \"https://…\" }",
        ),
        ("notify = { url = \"ftp://example.com/\" }", "2:18: only http and https are allowed, not ftp"),
        ("notify = { url = \"https://example.com:22/\" }", "2:18: port 22 belongs to another protocol"),
        ("notify = { url = \"https://example.com/\", on = [] }", "notify.on is empty"),
        ("notify = { url = \"https://example.com/\", timeout = \"2d\" }", "timeout = 2d is not between"),
    ] {
        let problem = refused(&format!("[queues.a]\n{text}\n[queues.b]\n"));
        assert!(problem.contains(message), "{text}\n{problem}");
        assert!(problem.starts_with("quell.toml:2:"), "{problem}");
    }
    let long = "x".repeat(58);
    let problem = refused(&format!("[queues.{long}]\nnotify = {{ url = \"https://example.com/\" }}\n"));
    assert!(
        problem.starts_with("quell.toml:2:18: the notices would wait in the queue \"notify.xxx"),
        "{problem}"
    );
    assert!(problem.contains("a name has at most 64 characters"), "{problem}");
    settings(&format!("[queues.{}]\nnotify = {{ url = \"https://example.com/\" }}\n", "x".repeat(57)));
    let taken = refused("[queues.a]\nnotify = { url = \"https://example.com/\" }\n[queues.\"notify.a\"]\n");
    assert!(
        taken.starts_with(
            "quell.toml:2:18: the notices would wait in the queue \"notify.a\", which this file"
        ),
        "{taken}"
    );
}
