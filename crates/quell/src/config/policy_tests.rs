//! Every setting about runs that are going, about notices and about schedules: what it becomes, and what is refused.

use quell_core::event::Overflow;
use quell_core::lane::{DuringRun, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;

use super::tests::{queue, refused, resolve, settings};
use super::*;

fn rules(text: &str) -> RunRules {
    queue(&settings(&format!("[queues.a]\n{text}\n")), "a").run.rules
}

#[test]
fn the_rules_of_a_run_reach_its_policy() {
    assert_eq!(rules(""), RunRules::default());
    for (word, during_run) in
        [("queue", DuringRun::Queue), ("interrupt", DuringRun::Interrupt), ("gate", DuringRun::Gate)]
    {
        assert_eq!(rules(&format!("during_run = {word:?}")).during_run, during_run);
    }
    for (word, on_failed) in
        [("continue", OnFailed::Continue), ("block", OnFailed::Block), ("bisect", OnFailed::Bisect)]
    {
        assert_eq!(rules(&format!("on_failed = {word:?}")).on_failed, on_failed);
    }
    assert_eq!(rules("max_interrupts = 7").max_interrupts, 7);
}

#[test]
fn a_retry_takes_newer_events_in_where_runs_give_way() {
    assert_eq!(rules("").retry_with, RetryWith::Same);
    assert_eq!(rules("retry.with = \"newer\"").retry_with, RetryWith::Newer);
    for word in ["interrupt", "gate"] {
        let during = format!("during_run = {word:?}\n");
        assert_eq!(rules(&during).retry_with, RetryWith::Newer);
        assert_eq!(rules(&format!("{during}retry.with = \"newer\"")).retry_with, RetryWith::Newer);
        let problem = refused(&format!("[queues.a]\n{during}retry.with = \"same\"\n"));
        assert!(problem.contains("3:14: with = \"same\" cannot be combined with during_run"), "{problem}");
        assert!(problem.contains("help: write with = \"newer\", or leave it out"), "{problem}");
    }
    let gate = settings("[queues.a]\nduring_run = \"gate\"\n").explain();
    let line = gate.iter().find(|line| line.setting == "queues.a.retry.with").unwrap();
    assert_eq!((line.value.as_str(), &line.origin), ("newer", &Origin::Default));
}

#[test]
fn a_gate_that_nobody_asks_at_is_a_warning() {
    let exec = settings("[queues.a]\nduring_run = \"gate\"\nhandler = { exec = [\"./x\"] }\n");
    assert_eq!(exec.warnings.len(), 1);
    assert!(exec.warnings[0].starts_with("queue a: a program cannot ask at the gate"), "{:?}", exec.warnings);
    let http =
        settings("[queues.a]\nduring_run = \"gate\"\nhandler = { http = \"http://localhost:8000/\" }\n");
    assert_eq!(http.warnings.len(), 1);
    assert!(
        http.warnings[0].contains("a service cannot ask at the gate, so unless it answers 409, with"),
        "{:?}",
        http.warnings
    );
    assert!(settings("[queues.a]\nduring_run = \"gate\"\nhandler = \"pull\"\n").warnings.is_empty());
}

#[test]
fn overflow_and_content_dedupe_reach_the_append() {
    let usual = queue(&settings("[queues.a]\n"), "a");
    assert_eq!((usual.append.overflow, usual.append.content_dedupe), (Overflow::Reject, false));
    let own = queue(&settings("[queues.a]\noverflow = \"drop_oldest\"\ncontent_dedupe = true\n"), "a");
    assert_eq!((own.append.overflow, own.append.content_dedupe), (Overflow::DropOldest, true));
}

#[test]
fn a_queue_may_tell_another_how_its_runs_end() {
    let told = settings(
        "[queues.orders]\nnotify = { queue = \"notices\" }\n[queues.mails]\n\
         notify = { queue = \"notices\", on = [\"failed\", \"cancelled\", \"failed\"] }\n\
         [queues.notices]\nwindow = \"none\"\nmax_payload = \"1KiB\"\n",
    );
    let notify = |name: &str| queue(&told, name).run.notify.clone();
    let orders = notify("orders").unwrap();
    assert_eq!(
        (orders.queue.as_str(), &orders.on[..]),
        ("notices", &[RunState::Succeeded, RunState::Failed][..])
    );
    assert_eq!(orders.policy, *queue(&told, "notices").append);
    assert_eq!(notify("mails").unwrap().on, [RunState::Failed, RunState::Cancelled]);
    assert_eq!(notify("notices"), None);
    let lines = told.explain();
    let line = |name: &str| lines.iter().find(|line| line.setting == name).unwrap().value.clone();
    assert_eq!(line("queues.orders.notify"), "{ queue = \"notices\", on = [\"succeeded\", \"failed\"] }");
    assert_eq!(line("queues.notices.notify"), "nobody");
}

#[test]
fn impossible_policies_are_refused_with_place_and_fix() {
    for (text, message) in [
        ("during_run = \"interupt\"", "2:14: during_run = \"interupt\" is not known"),
        ("during_run = \"interupt\"", "help: did you mean \"interrupt\"?"),
        ("on_failed = \"stop\"", "help: write one of [\"continue\", \"block\", \"bisect\"]"),
        ("max_interrupts = 0", "2:18: max_interrupts = 0 is not between 1 and 100"),
        ("overflow = \"drop-oldest\"", "help: did you mean \"drop_oldest\"?"),
        ("content_dedupe = 1", "2:18: invalid type"),
        ("retry.with = \"old\"", "with = \"old\" is not known"),
        ("notify = {}", "2:10: notify does not say who is told"),
        ("notify = { queue = \"b\" }", "2:20: there is no queue \"b\" to notify"),
        ("notify = { queue = \"a\" }", "2:20: a queue cannot notify itself"),
        ("notify = { queue = \"B\" }", "queue name \"B\" is not"),
        ("notify = { queue = \"a\", on = [] }", "2:30: notify.on is empty"),
        ("notify = { queue = \"a\", on = [\"done\"] }", "\"done\" is not an end of a run"),
        ("notify = { queue = \"a\", on = [\"running\"] }", "\"running\" is not an end of a run"),
        ("notify = { queue = \"a\", event = 1 }", "unknown setting `event`"),
    ] {
        let problem = refused(&format!("[queues.a]\n{text}\n"));
        assert!(problem.contains(message), "{text}\n{problem}");
        assert!(problem.starts_with("quell.toml:2:"), "{problem}");
    }
    let chain =
        "[queues.a]\nnotify = { queue = \"b\" }\n[queues.b]\nnotify = { queue = \"c\" }\n[queues.c]\n";
    let problem = refused(chain);
    assert!(problem.starts_with("quell.toml:4:20: queue \"b\" receives the notices of \"a\""), "{problem}");
    let near = refused("[queues.a]\nnotify = { queue = \"notice\" }\n[queues.notices]\n");
    assert!(near.contains("help: did you mean \"notices\"?"), "{near}");
    let top = refused("notify = { queue = \"a\" }\n[queues.a]\n");
    assert!(top.contains("1:10: notify belongs to a queue"), "{top}");
}

const REPORT: &str = "[queues.report]\nmax_payload = \"64B\"\n[schedules.nightly]\n";

fn schedule(text: &str) -> Result<ScheduleSettings, String> {
    let settings = resolve(Some(&format!("{REPORT}{text}\n")), &[], Flags::default())?;
    Ok(settings.schedules.expect("there is a file").remove(0))
}

#[test]
fn a_schedule_has_a_time_a_zone_and_an_event() {
    let least = schedule("cron = \"0 3 * * *\"\nqueue = \"report\"\nkey = \"daily\"").unwrap();
    assert_eq!(
        (least.name.as_str(), least.cron.to_string(), least.zone.name()),
        ("nightly", "0 3 * * *".into(), "UTC")
    );
    assert_eq!((least.queue.as_str(), least.key.as_str(), least.payload.as_str()), ("report", "daily", "{}"));
    assert!(least.tenant.is_none());
    let whole = schedule(
        "cron = \"@weekly\"\nzone = \"Europe/Berlin\"\nqueue = \"report\"\nkey = \"k\"\ntenant = \"acme\"\n\
         payload = { n = 1, x = [1.5, true], d = 2026-01-02, t = \"é\" }",
    )
    .unwrap();
    assert_eq!((whole.zone.name(), whole.tenant.as_str()), ("Europe/Berlin", "acme"));
    assert_eq!(whole.payload.as_str(), "{\"d\":\"2026-01-02\",\"n\":1,\"t\":\"é\",\"x\":[1.5,true]}");
    let plain = schedule("cron = \"@daily\"\nqueue = \"report\"\nkey = \"k\"\npayload = \"go\"").unwrap();
    assert_eq!(plain.payload.as_str(), "\"go\"");
}

#[test]
fn a_process_without_a_file_has_no_say_about_schedules() {
    assert!(resolve(None, &[], Flags::default()).unwrap().schedules.is_none());
    assert_eq!(settings("[queues.a]\n").schedules, Some(Vec::new()));
}

#[test]
fn impossible_schedules_are_refused_with_place_and_fix() {
    let full = "cron = \"0 3 * * *\"\nqueue = \"report\"\nkey = \"k\"\n";
    for (text, message) in [
        ("queue = \"report\"\nkey = \"k\"", "3:12: the schedule \"nightly\" has no cron"),
        ("queue = \"report\"\nkey = \"k\"", "help: write for example cron = \"0 3 * * *\""),
        ("cron = \"@daily\"\nkey = \"k\"", "has no queue"),
        ("cron = \"@daily\"\nqueue = \"report\"", "has no key"),
        (
            "cron = \"0 3 * *\"\nqueue = \"report\"\nkey = \"k\"",
            "4:8: cron: a cron expression has five fields",
        ),
        ("cron = \"0 0 31 2 *\"\nqueue = \"report\"\nkey = \"k\"", "never fires"),
        ("cron = \"@daily\"\nqueue = \"reprot\"\nkey = \"k\"", "5:9: there is no queue \"reprot\""),
        ("cron = \"@daily\"\nqueue = \"reprot\"\nkey = \"k\"", "help: did you mean \"report\"?"),
        ("cron = \"@daily\"\nqueue = \"report\"\nkey = \"\"", "6:7: key is empty"),
        (&format!("{full}zone = \"Mars/Olympus\""), "7:8: zone: "),
        (&format!("{full}payload = {{ n = nan }}"), "7:11: payload: NaN is no number of JSON"),
        (
            &format!("{full}payload = \"{}\"", "x".repeat(70)),
            "a payload of 72 bytes; the queue \"report\" allows 64",
        ),
        (&format!("{full}crom = 1"), "help: did you mean `cron`?"),
    ] {
        let problem = schedule(text).unwrap_err();
        assert!(problem.contains(message), "{text}\n{problem}");
        assert!(problem.starts_with("quell.toml:"), "{problem}");
    }
    let long = format!("[queues.report]\n[schedules.{}]\n{full}", "x".repeat(58));
    assert!(refused(&long).contains("is not 1 to 57 characters"));
}

#[test]
fn a_schedule_that_the_clock_changes_always_skip_is_a_warning() {
    // The last Sunday of March, on which the clock goes from 2:00 to 3:00 in Berlin.
    let text = |zone: &str| {
        let when = format!("cron = \"*/15 2 25-31 3 */7\"\nzone = {zone:?}\n");
        format!("[queues.report]\n[schedules.odd]\n{when}queue = \"report\"\nkey = \"k\"\n")
    };
    assert_eq!(settings(&text("UTC")).warnings, Vec::<String>::new());
    assert_eq!(
        settings(&text("Europe/Berlin")).warnings,
        [
            "the schedule odd (\"*/15 2 25-31 3 */7\" in Europe/Berlin) does not fire within 40 years: the changes of the \
          clock skip it"
        ]
    );
}
