//! `[chat]`: what it becomes, what it does to the queue, and what is refused.

use std::time::Duration;

use quell_core::event::{QueueName, Tenant};
use quell_core::lane::{DuringRun, RetryWith};
use quell_core::lifecycle::RunState;
use quell_core::window::WindowPolicy;

use super::tests::{queue, refused, settings};
use super::*;

const MODEL: &str = "model = { name = \"m\" }\n";

fn tenant(settings: &Settings, name: &str) -> Arc<ChatTenant> {
    settings.chat.as_ref().unwrap().tenants[&Tenant::new(name).unwrap()].clone()
}

#[test]
fn a_tenant_has_the_defaults_of_the_contract() {
    let settings = settings(&format!("[chat.tenants.acme]\n{MODEL}"));
    let acme = tenant(&settings, "acme");
    let minute = Duration::from_secs(60);
    assert_eq!(acme.window, WindowPolicy::Quiet { quiet: minute, max_wait: minute * 5 });
    assert!(acme.typing_indicator && acme.natural_delays && !acme.content_dedupe && acme.model.stream);
    assert_eq!((acme.delay_variance_percent, acme.aggregation), (20, Aggregation::Timed));
    assert_eq!(acme.model.url, "https://api.openai.com/v1");
    assert!(settings.warnings.is_empty(), "{:?}", settings.warnings);
}

#[test]
fn the_queue_knows_the_policies_of_each_tenant() {
    let text = format!(
        "[chat.default]\nwait_time_before_replying_ms = 2000\n{MODEL}[chat.tenants.a]\nmessage_reset_enabled = false\n\
         during_run = \"interrupt\"\n[chat.tenants.b]\ncontent_dedupe = true\nmax_wait = \"1m\"\n"
    );
    let settings = settings(&text);
    let chat = queue(&settings, CHAT);
    let of = |name: &str| chat.append_policy(&Tenant::new(name).unwrap());
    let two = Duration::from_secs(2);
    assert_eq!(of("a").window.policy, WindowPolicy::Fixed { wait: two });
    assert_eq!(of("b").window.policy, WindowPolicy::Quiet { quiet: two, max_wait: two * 30 });
    assert_eq!(of("").window.policy, WindowPolicy::Quiet { quiet: two, max_wait: two * 5 });
    assert_eq!([of("a").content_dedupe, of("b").content_dedupe], [false, true]);
    assert_eq!(of("a").source.as_ref().unwrap().as_str(), "chat-model");
    let runs = chat.tenants.run_policies();
    let a = &runs[&Tenant::new("a").unwrap()];
    assert_eq!((a.rules.during_run, a.rules.retry_with), (DuringRun::Interrupt, RetryWith::Newer));
    assert_eq!(runs[&Tenant::new("b").unwrap()].rules.during_run, DuringRun::Queue);
    let notify = a.notify.as_ref().unwrap();
    assert_eq!((notify.queue.as_str(), &notify.on[..]), (CHAT_FAILED, &[RunState::Failed][..]));
    assert_eq!(chat.handler, HandlerSettings::App);
    assert_eq!((chat.retry.attempts, chat.retry.cap), (8, Duration::from_secs(60)), "a customer waits");
    assert_eq!(queue(&settings, CHAT_FAILED).append.window.policy, WindowPolicy::None);
    assert!(settings.sources.iter().any(|source| source.name.as_str() == "chat-model"));
}

#[test]
fn policies_change_for_everybody_who_has_the_queue() {
    let before = settings(&format!("[chat.tenants.a]\nwait_time_before_replying_ms = 1000\n{MODEL}"));
    let after = settings(&format!("[chat.tenants.a]\nwait_time_before_replying_ms = 5000\n{MODEL}"));
    let (held, a) = (queue(&before, CHAT), Tenant::new("a").unwrap());
    after.chat.unwrap().apply(&before.queue(&QueueName::new(CHAT).unwrap()).unwrap());
    let quiet = Duration::from_secs(5);
    assert_eq!(held.append_policy(&a).window.policy, WindowPolicy::Quiet { quiet, max_wait: quiet * 5 });
}

#[test]
fn a_wait_out_of_range_is_moved_into_it_with_a_warning() {
    for (asked, used) in [(1, 100), (-5, 100), (999_999, 120_000)] {
        let settings =
            settings(&format!("[chat.tenants.a]\nwait_time_before_replying_ms = {asked}\n{MODEL}"));
        let WindowPolicy::Quiet { quiet, .. } = tenant(&settings, "a").window else { panic!() };
        assert_eq!(quiet.as_millis(), used);
        assert!(settings.warnings[0].contains("is not between 100 and 120000"), "{:?}", settings.warnings);
    }
    let settings = settings(&format!("[chat.tenants.a]\nmax_wait = \"61s\"\n{MODEL}"));
    let WindowPolicy::Quiet { max_wait, .. } = tenant(&settings, "a").window else { panic!() };
    assert_eq!(max_wait, Duration::from_secs(120));
    assert!(settings.warnings[0].contains("less than two waits"), "{:?}", settings.warnings);
}

#[test]
fn what_cannot_work_is_refused_at_its_place() {
    for (text, message) in [
        ("[chat.tenants.a]\n".to_owned(), "the section \"chat.tenants.a\" has no model.name"),
        (format!("[chat.tenants.a]\nduring_run = \"stop\"\n{MODEL}"), "during_run = \"stop\" is not known"),
        (
            format!("[chat.tenants.a]\nprompt = \"a\"\nprompt_file = \"b\"\n{MODEL}"),
            "here or in a file, not both",
        ),
        (format!("[chat.tenants.a]\nwati = {{ token_env = \"W\" }}\n{MODEL}"), "has no wati.url"),
        (format!("[chat.tenants.a]\nwati = {{ url = \"https://w.example\" }}\n{MODEL}"), "wati has no token"),
        (
            format!("[chat.tenants.a]\nmeta = {{ token_env = \"se cret\" }}\n{MODEL}"),
            "is not a variable name",
        ),
        (
            "[chat.tenants.a]\nmodel = { name = \"m\", source = \"none\" }\n".to_owned(),
            "there is no source \"none\"",
        ),
        ("[chat.tenants.a]\nmodel = { name = \"m\", url = \"ftp://x\" }\n".to_owned(), "ftp"),
        (
            format!("[chat.tenants.a]\n{MODEL}[queues.chat]\nnotify = {{ queue = \"b\" }}\n[queues.b]\n"),
            "no notify of its own",
        ),
        ("[chat.meta]\n".to_owned(), "unknown setting `meta`"),
    ] {
        let problem = refused(&text);
        assert!(problem.contains(message), "{text}\n{problem}");
    }
}

#[test]
fn without_the_section_the_queue_is_anybodys() {
    let settings = settings("[queues.chat]\n");
    assert_eq!(queue(&settings, CHAT).handler, HandlerSettings::Log);
    assert!(settings.chat.is_none());
}
