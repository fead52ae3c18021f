//! What a worker says when it starts: which store and why, how durable, which queues, and what to type next.

use owo_colors::OwoColorize;
use quell::config::{CHAT, CHAT_FAILED, DurationText, HandlerSettings, QueueSettings};
use quell::quell_core::event::QueueName;
use quell::quell_core::store::Durability;
use quell::quell_core::window::WindowPolicy;
use quell::{Engine, Worker};

use super::{Http, Staff, Task};
use crate::args::Global;
use crate::context::Loaded;
use crate::output;

/// More queues than this are counted, not listed.
const QUEUES_LISTED: usize = 8;

pub(super) fn tell(
    engine: &Engine,
    loaded: &Loaded,
    worker: Option<&Worker>,
    http: Option<&Http>,
    staff: &Staff,
    task: &Task,
    global: &Global,
) {
    let settings = engine.settings();
    let store = &settings.store;
    let durability = match engine.store().description().durability {
        Durability::Durable => "durable".green().to_string(),
        Durability::BestEffort(why) => format!("{}: {why}", "best effort".yellow()),
    };
    let why = loaded.told(&store.origin);
    output::say(format!("{} {} works on {} ({why}), {durability}", "quell".bold(), version(), store.url));
    let say = |name: &str, text: String| output::say(format!("  {}  {text}", format!("{name:7}").dimmed()));

    if let Some(http) = http {
        let pages = http.admin_address().unwrap_or_else(|| http.address());
        say("http", format!("http://{} takes events in and hands work out", http.address()));
        say("", format!("{} is the dashboard", format!("http://{pages}/").cyan()));
        for (place, endpoint) in settings.endpoints.iter().enumerate() {
            let path = endpoint.path.clone().unwrap_or_else(|| format!("/hooks/{}", endpoint.name));
            let url = format!("http://{}{path}", http.address());
            let (scheme, proof) = (endpoint.scheme.name(), endpoint.scheme.proof().as_str());
            let text = format!("{url} ({scheme}, {proof}) into {}", endpoint.queue);
            say(if place == 0 { "hooks" } else { "" }, text);
        }
    }
    if let Some(forwarding) = task.forwarding() {
        say("forward", format!("every batch goes to {}", forwarding.url.cyan()));
        if let Some(secret) = &forwarding.shown {
            say("", format!("signed with {secret}, for this run alone"));
        }
    }
    let mut example = http.map(|_| "hello".to_owned()).filter(|_| loaded.file.is_none());
    if let Some(worker) = worker {
        let (queues, first) = queues(loaded, worker, engine, task.forwarding().is_some());
        example = example.or(first);
        for (place, text) in queues.into_iter().enumerate() {
            say(if place == 0 { "queues" } else { "" }, text);
        }
        let processes = match staff.processes {
            1 => String::new(),
            n => format!(", {n} processes"),
        };
        let (id, lanes) = (worker.id(), settings.worker.concurrency);
        say("worker", format!("{} pid {}, {lanes} keys at once{processes}", id.name, id.pid));
    } else {
        say("worker", "none: `quell work` runs the handlers elsewhere".to_owned());
    }
    if task.until_idle() {
        return;
    }
    if let Some(queue) = example {
        let command = format!("quell send{} {queue} world '{{\"text\":\"hi\"}}'", same_store(global));
        say("next", format!("{}   in another terminal", command.cyan()));
    }
    let grace = DurationText::show(settings.worker.grace);
    say(
        "stop",
        format!(
            "Ctrl-C: running handlers finish or are handed back within {grace}; a second one stops at once"
        ),
    );
}

fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The queues in words, a line each, and one to try.
fn queues(
    loaded: &Loaded,
    worker: &Worker,
    engine: &Engine,
    forwarded: bool,
) -> (Vec<String>, Option<String>) {
    let described = |queue: &QueueSettings| described(queue, forwarded);
    let settings = engine.settings();
    let Some(names) = worker.queues() else {
        let Some(any) = &settings.default_queue else { return (vec!["none".to_owned()], None) };
        let why = if loaded.file.is_none() { " (no quell.toml here)" } else { "" };
        return (vec![format!("any name: {}{why}", described(any))], Some("hello".to_owned()));
    };
    if names.is_empty() {
        let text = "none that this process could handle: all of them are pulled by workers elsewhere";
        return (vec![text.yellow().to_string()], None);
    }
    let listed = names.iter().take(QUEUES_LISTED);
    let mut texts: Vec<String> = listed
        .filter_map(|name| settings.queue(name).map(|queue| format!("{name}: {}", described(&queue))))
        .collect();
    if names.len() > QUEUES_LISTED {
        texts.push(format!("and {} more; `quell check` shows all", names.len() - QUEUES_LISTED));
    }
    // What an application reads comes another way.
    let plain =
        |name: &&QueueName| settings.queue(name).is_some_and(|queue| queue.handler != HandlerSettings::App);
    (texts, names.iter().find(plain).map(|name| name.to_string()))
}

/// `quiet 1s up to 10s, handler log`
fn described(queue: &QueueSettings, forwarded: bool) -> String {
    let windows = queue.tenants.windows();
    let window = match &windows[..] {
        [] => waits(queue.append.window.policy),
        [(_, only)] => waits(*only),
        many => format!("windows of {} tenants", many.len()),
    };
    let handler = match &queue.handler {
        _ if forwarded => return window,
        HandlerSettings::Log => "log".to_owned(),
        HandlerSettings::Pull => "pull".to_owned(),
        HandlerSettings::App if queue.name.as_str() == CHAT => "answers customers".to_owned(),
        HandlerSettings::App if queue.name.as_str() == CHAT_FAILED => "asks for a person".to_owned(),
        HandlerSettings::App => "reads transcripts".to_owned(),
        HandlerSettings::Exec(exec) => format!("exec {}", exec.argv.join(" ")),
        HandlerSettings::Http(push) => format!("http {}", push.target()),
    };
    format!("{window}, handler {handler}")
}

fn waits(window: WindowPolicy) -> String {
    match window {
        WindowPolicy::None => "no window".to_owned(),
        WindowPolicy::Fixed { wait } => format!("fixed {}", DurationText::show(wait)),
        WindowPolicy::Quiet { quiet, max_wait } => {
            format!("quiet {} up to {}", DurationText::show(quiet), DurationText::show(max_wait))
        }
    }
}

/// The flags that another command needs to reach the same store.
fn same_store(global: &Global) -> String {
    let mut flags = String::new();
    if let Some(store) = &global.store {
        flags.push_str(&format!(" --store {}", output::quoted(store)));
    }
    if let Some(config) = &global.config {
        flags.push_str(&format!(" --config {}", output::quoted(&config.to_string_lossy())));
    }
    flags
}
