//! A chat under load: many customers at once, with real processes, and one reply for each burst.

use std::collections::BTreeMap;
use std::time::Duration;

use quell_chat::local::{Asked, Ended, LocalModel, LocalProviders, Script};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::support::{Folder, PATIENCE, Process, http, until};

const PASSKEY: &str = "passkey-of-this-test";
const PROCESSES: usize = 4;
const LANES: usize = 20;
/// Long enough for all customers to have been asked about before the first of them is answered, on a busy machine as well.
const THINKING: Duration = Duration::from_secs(8);

/// A twentieth of the benchmark: it checks by itself that each burst is answered once, whole and in order.
#[test]
fn five_hundred_customers_are_answered_once_per_burst_in_order() {
    let folder = Folder::new();
    let figures = folder.json(&["bench", "chat", "--customers", "500"]);
    let items = figures["items"].as_array().unwrap();
    assert_eq!((&items[0]["value"], &items[0]["reached"]), (&550.0.into(), &true.into()), "{figures}");
    let units: Vec<&str> = items.iter().map(|item| item["unit"].as_str().unwrap()).collect();
    assert_eq!(units, ["", "s", "bursts/s", "ms", "ms", "ms", "ms", "ms", "MB"], "{figures}");
    let raw = items[3]["raw"].as_f64().unwrap();
    assert!(raw > 0.0 && items[3]["value"].as_f64().unwrap() > 0.0, "{figures}");
    assert_eq!(std::fs::read_dir(folder.path("")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn four_processes_of_twenty_have_eighty_customers_with_the_model_at_once() {
    let runtime = Runtime::new().unwrap();
    let script = Script { thinking: THINKING, ..Script::computed(echo) };
    let model = runtime.block_on(LocalModel::start(script)).unwrap();
    let providers = runtime.block_on(LocalProviders::start()).unwrap();
    let folder = Folder::with_config(&config(&model, &providers));
    let mut server = start(&folder, &["serve", "--no-work"]);
    let address = server.http_address();
    let (processes, lanes) = (PROCESSES.to_string(), LANES.to_string());
    let mut workers = start(&folder, &["work", "--processes", &processes, "--concurrency", &lanes]);
    for _ in 0..PROCESSES {
        workers.line("startup.swept");
    }

    let customers: Vec<String> = (0..PROCESSES * LANES).map(|n| format!("1202{n:07}")).collect();
    for customer in &customers {
        for text in ["Hi!", "do you buy silver coins?"] {
            write(&address, customer, text);
        }
    }
    let with_the_model = |all: &[Asked]| all.iter().filter(|asked| asked.ended == Ended::NotYet).count();
    wait(&runtime, "all of them to be with the model at once", async {
        model.wait_until(|all| with_the_model(all) == customers.len()).await;
    });
    wait(&runtime, "a reply for each", async {
        providers.wait_until(|all| all.len() >= customers.len()).await;
    });

    // Whatever would be one too many comes before everything is settled.
    until("everything is settled", || {
        let doctor = folder.json(&["doctor"]);
        let queues = doctor["queues"].as_array().unwrap();
        let chat = queues.iter().find(|queue| queue["queue"] == "chat").unwrap();
        chat["succeeded"] == 2 * customers.len()
    });
    let mut replies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for reply in providers.delivered() {
        replies.entry(reply.to).or_default().push(reply.text);
    }
    assert_eq!(replies.keys().collect::<Vec<_>>(), customers.iter().collect::<Vec<_>>());
    for (customer, texts) in &replies {
        assert_eq!(texts, &[format!("{customer}: do you buy silver coins?")]);
    }
    assert_eq!(model.asked().len(), customers.len(), "each burst was asked once");
    workers.stop();
    server.stop();
}

fn config(model: &LocalModel, providers: &LocalProviders) -> String {
    format!(
        "[endpoints.wati]\nscheme = \"wati\"\nsecret_env = \"PASSKEY\"\npath = \"/webhook\"\n\
         [chat.default]\nwait_time_before_replying_ms = 1500\nnatural_delays_enabled = false\n\
         typing_indicator_enabled = false\naggregation = \"plain\"\n\
         model = {{ name = \"local\", url = \"{}\" }}\n{}",
        model.base_url(),
        providers.settings()
    )
}

/// The customer's own last line, so that nobody gets another's reply unseen.
fn echo(asked: &Asked) -> String {
    let question = asked.messages.last().unwrap().content.clone();
    assert_eq!(question.lines().count(), 2, "{question}");
    question.lines().last().unwrap().to_owned()
}

fn start(folder: &Folder, args: &[&str]) -> Process {
    let mut command = folder.command(args);
    command.envs(LocalProviders::env()).env("PASSKEY", PASSKEY).env("QUELL_LISTEN", "127.0.0.1:0");
    Process::start(command)
}

fn write(address: &str, customer: &str, text: &str) {
    let id = format!("wamid.{customer}.{}", text.len());
    let text = format!("{customer}: {text}");
    let body = json!({ "waId": customer, "text": text, "whatsappMessageId": id }).to_string();
    let (status, told) = http(address, "POST", "/webhook", Some(PASSKEY), &body);
    assert_eq!(status, 200, "{told}");
}

fn wait(runtime: &Runtime, what: &str, awaited: impl Future<Output = ()>) {
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, awaited).await });
    waited.unwrap_or_else(|_| panic!("waited too long for {what}"));
}
