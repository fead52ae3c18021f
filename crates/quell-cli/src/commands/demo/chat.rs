//! `quell demo chat`: a customer types, the bot waits until the burst is over and answers once.
//!
//! Everything is real but the two outside parties: a store, an endpoint for webhooks, a worker, and a local model and a local
//! WATI that speak the real protocols over HTTP. On a terminal you are the customer; without one, somebody else types.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use owo_colors::OwoColorize;
use quell::clock;
use quell::config::{Config, Flags, Settings, SettingsInput, SourceText};
use quell::fetch::{Call, Http, Method};
use quell::{Engine, Shutdown, Worker, WorkerOptions, endpoints};
use quell_chat::book;
use quell_chat::live::Live;
use quell_chat::local::{Asked, LocalModel, LocalProviders, Script};
use quell_server::{Server, ServerOptions};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::failure::{self, Failure};
use crate::outgoing;
use crate::output;
use crate::signals::Signals;

/// How long the customer must be silent: long enough to type on, short enough to wait for.
const QUIET_MS: u64 = 3_000;
const CUSTOMER: &str = "12025550110";
const PASSKEY: &str = "demo-passkey-of-this-machine";
/// What is typed where nobody can type, and after which pause.
const TYPED: [(u64, &str); 5] = [
    (0, "Hi!"),
    (1_200, "do you buy silver coins?"),
    (1_500, "I have about twenty of them"),
    (6_500, "ok"),
    (500, "ok"),
];
/// Nothing here takes longer than the window and a moment.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn play() -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let folder = tempfile::tempdir()?;
    let stage = Stage::open(folder.path()).await?;
    output::line(format!(
        "A WhatsApp bot on this machine: the webhook, the store and the worker are real, model and provider are local servers.\n\
         The bot answers when you have been silent for {} s. Type quickly, several lines; Ctrl-D ends.\n",
        QUIET_MS / 1_000
    ))?;
    let mut typed = keyboard();
    let (mut asked, mut answered, mut bursts, mut open) = (0, 0, 0, false);
    loop {
        tokio::select! {
            line = typed.recv() => match line {
                Some(line) => {
                    stage.send(&line).await?;
                    let waits = if open { "the wait begins anew" } else { "the wait begins" };
                    bursts += usize::from(!open);
                    open = true;
                    output::line(format!("{} {line}   {}", "you".cyan(), waits.dimmed()))?;
                }
                None if answered == bursts => break,
                None => {
                    stage.ends(&mut asked, &mut answered, bursts).await?;
                    break;
                }
            },
            () = stage.model.wait_until(|all| all.len() > asked) => {
                stage.show_question(asked)?;
                asked += 1;
                open = false;
            }
            () = stage.providers.wait_until(|all| all.len() > answered) => {
                stage.show_reply(answered)?;
                answered += 1;
            }
            _ = signals.next_stop() => break,
        }
    }
    let all = stage.providers.delivered().len();
    output::line(format!("\n{bursts} bursts, {all} replies: one for each."))?;
    stage.close().await;
    Ok(())
}

/// Lines from the terminal, or those of the play.
fn keyboard() -> mpsc::Receiver<String> {
    let (tell, typed) = mpsc::channel(16);
    if std::io::stdin().is_terminal() {
        // A plain thread, because nothing can end a read of a terminal.
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                if !line.trim().is_empty() && tell.blocking_send(line).is_err() {
                    return;
                }
            }
        });
    } else {
        tokio::spawn(async move {
            for (pause, line) in TYPED {
                clock::sleep(Duration::from_millis(pause)).await;
                if tell.send(line.to_owned()).await.is_err() {
                    return;
                }
            }
        });
    }
    typed
}

struct Stage {
    model: LocalModel,
    providers: LocalProviders,
    http: Http,
    hook: String,
    stop: CancellationToken,
    shutdown: Shutdown,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Stage {
    async fn open(folder: &std::path::Path) -> Result<Stage, Failure> {
        let thinking = Duration::from_millis(700);
        let model = LocalModel::start(Script {
            thinking,
            delay: Duration::from_millis(20),
            ..Script::computed(reply)
        })
        .await?;
        let providers = LocalProviders::start().await?;
        let mut env: BTreeMap<String, String> =
            LocalProviders::env().map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        env.insert("DEMO_PASSKEY".to_owned(), PASSKEY.to_owned());
        let settings = settings(folder, &model, &providers, &env)?;
        let broken = |problem: String| Failure::new(failure::FAILED, problem);
        let chat = settings.chat.clone().unwrap_or_default();
        let live = Arc::new(Live::load(&chat, &env).map_err(broken)?);
        let client = quell_chat::client(&settings).map_err(|error| broken(error.to_string()))?;
        let engine = Engine::open(settings).await?;
        let book = book::open(engine.store().clone()).await?;
        let (endpoints, _) = endpoints::ready(&engine.settings(), &env)?;
        let options = ServerOptions { endpoints, ..ServerOptions::at("127.0.0.1:0") };
        let server =
            Server::bind(engine.clone(), options).await.map_err(|error| broken(error.to_string()))?;
        let hook = format!("http://{}/webhook", server.address());
        let handlers = quell_chat::handlers(&engine, &book, &live, &client);
        let worker = Worker::new(engine, WorkerOptions { handlers, env, ..WorkerOptions::default() })?;
        let (stop, shutdown) = (CancellationToken::new(), Shutdown::new());
        let (serving, asked) = (stop.clone(), shutdown.clone());
        let tasks = vec![
            tokio::spawn(async move {
                server.run(serving, Duration::from_secs(1)).await;
            }),
            tokio::spawn(async move {
                worker.run(asked).await;
            }),
        ];
        let http = outgoing::client(&hook)?;
        Ok(Stage { model, providers, http, hook, stop, shutdown, tasks })
    }

    /// As the provider would: a webhook for each message.
    async fn send(&self, text: &str) -> Result<(), Failure> {
        let body = json!({ "waId": CUSTOMER, "senderName": "You", "text": text, "passkey": PASSKEY });
        let call = Call::new(Method::POST, &self.hook).body(body.to_string());
        let reply = self.http.call(call).await;
        let reply = reply.map_err(|error| Failure::new(failure::FAILED, error.to_string()))?;
        match reply.status.is_success() {
            true => Ok(()),
            false => Err(Failure::new(failure::FAILED, format!("the webhook was answered {}", reply.status))),
        }
    }

    fn show_question(&self, number: usize) -> std::io::Result<()> {
        let all = self.model.asked();
        let Some(question) = all.get(number).and_then(|asked| asked.messages.last()) else { return Ok(()) };
        let text = question.content.replace('\n', "\n     ");
        output::line(format!(
            "\n{}\n     {}",
            "silent for 3 s: the model is asked once, with".dimmed(),
            text.dimmed()
        ))
    }

    fn show_reply(&self, number: usize) -> std::io::Result<()> {
        let all = self.providers.delivered();
        let Some(reply) = all.get(number) else { return Ok(()) };
        output::line(format!("{} {}\n", "bot".green(), reply.text))
    }

    /// Nobody types any more: what is under way is still answered.
    async fn ends(&self, asked: &mut usize, answered: &mut usize, bursts: usize) -> Result<(), Failure> {
        let rest = async {
            while *answered < bursts {
                tokio::select! {
                    () = self.model.wait_until(|all| all.len() > *asked) => {
                        self.show_question(*asked)?;
                        *asked += 1;
                    }
                    () = self.providers.wait_until(|all| all.len() > *answered) => {
                        self.show_reply(*answered)?;
                        *answered += 1;
                    }
                }
            }
            Ok::<(), std::io::Error>(())
        };
        match tokio::time::timeout(PATIENCE, rest).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(Failure::new(failure::FAILED, "the bot did not answer in time: that is a bug")),
        }
    }

    async fn close(self) {
        self.shutdown.request();
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// What the local model says: enough to see what it was given.
fn reply(asked: &Asked) -> String {
    let question = asked.messages.last().map(|turn| turn.content.as_str()).unwrap_or_default();
    let lines = question.lines().count();
    let before = asked.messages.len().saturating_sub(2) / 2;
    let known = match before {
        0 => String::new(),
        1 => " I remember our last exchange.".to_owned(),
        n => format!(" I remember our last {n} exchanges."),
    };
    match lines {
        1 => format!("One message, one answer.{known}"),
        n => format!("You wrote {n} messages, and this is one answer to all of them.{known}"),
    }
}

fn settings(
    folder: &std::path::Path,
    model: &LocalModel,
    providers: &LocalProviders,
    env: &BTreeMap<String, String>,
) -> Result<Settings, Failure> {
    let text = format!(
        "[endpoints.demo]\nscheme = \"wati\"\nsecret_env = \"DEMO_PASSKEY\"\npath = \"/webhook\"\n\
         [chat.default]\nwait_time_before_replying_ms = {QUIET_MS}\ndelay_variance_percent = 0\n\
         prompt = \"You help customers of a coin shop.\"\nmodel = {{ name = \"local\", url = \"{}\" }}\n{}",
        model.base_url(),
        providers.settings()
    );
    let config = Some((Config::parse(&text, "demo")?, SourceText::new("demo", &text)));
    let store = format!("sqlite:{}", folder.join("chat.db").display());
    let flags = Flags { store: Some(store), ..Flags::default() };
    Ok(Settings::resolve_with(SettingsInput { config, env, flags }, &quell_chat::inbound::schemes())?)
}
