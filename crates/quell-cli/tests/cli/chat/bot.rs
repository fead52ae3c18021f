//! A bot of its own for each test: a folder with its configuration, a model and providers in this process, and servers and
//! workers that are started, killed and read.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell_chat::local::{Asked, LocalModel, LocalProviders, Received, Script};
use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::hook::host::{Watch, millis, until};
use crate::support::{Answer, Folder, Line, PATIENCE, Process, items};

/// The word of the older system, with everything in it that an address or a shell could spoil.
pub(super) const PASSKEY: &str = "FuK@tTcKerZ-2o25";
/// What `curl -d` calls everything.
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Where a bot keeps its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
    Redis,
}

/// What is different from one test to the next.
pub(super) struct Setup<'a> {
    pub(super) kind: Kind,
    pub(super) wait: Duration,
    pub(super) lease: &'a str,
    /// More of `[chat.default]`.
    pub(super) tenant: &'a str,
    /// More sections.
    pub(super) sections: &'a str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Setup { kind: Kind::Sqlite, wait: Duration::from_millis(300), lease: "2s", tenant: "", sections: "" }
    }
}

impl Setup<'_> {
    pub(super) fn on(kind: Kind) -> Self {
        Setup { kind, ..Setup::default() }
    }

    pub(super) fn waiting(self, millis: u64) -> Self {
        Setup { wait: Duration::from_millis(millis), ..self }
    }
}

pub(super) struct Bot {
    pub(super) folder: Folder,
    pub(super) model: LocalModel,
    pub(super) providers: LocalProviders,
    /// The address of the store, unless it is the file in the folder.
    pub(super) store: Option<String>,
    /// Runs model and providers.
    _runtime: tokio::runtime::Runtime,
}

impl Bot {
    pub(super) fn new(setup: &Setup<'_>) -> Bot {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let model = runtime.block_on(LocalModel::start(echo())).unwrap();
        let providers = runtime.block_on(LocalProviders::start()).unwrap();
        let bot =
            Bot { folder: Folder::new(), model, providers, store: store(setup.kind), _runtime: runtime };
        bot.configure(setup);
        bot
    }

    /// Writes quell.toml, also while servers read it.
    pub(super) fn configure(&self, setup: &Setup<'_>) {
        let Setup { wait, lease, tenant, sections, .. } = setup;
        let (wait, model, accounts) = (wait.as_millis(), self.model.base_url(), self.providers.settings());
        // Replaced in one move, as careful editors do: whoever reads it at this moment gets all of it.
        self.folder.write(
            "quell.toml.new",
            &format!(
                "[worker]\nsweep_every = \"1s\"\n\
                 [endpoints.whatsapp]\nscheme = \"wati\"\npath = \"/webhook\"\nsecret_env = \"WATI_PASSKEY\"\n\
                 [queues.chat]\nlease = \"{lease}\"\nretry = {{ base = \"100ms\", attempts = 5, jitter = 0.0 }}\n\
                 [chat.default]\nwait_time_before_replying_ms = {wait}\ntyping_indicator_enabled = false\n\
                 natural_delays_enabled = false\n{tenant}\nmodel = {{ name = \"local\", url = \"{model}\" }}\n\
                 {accounts}\n{sections}"
            ),
        );
        std::fs::rename(self.folder.path("quell.toml.new"), self.folder.path("quell.toml")).unwrap();
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command(args);
        command.envs(LocalProviders::env()).env("WATI_PASSKEY", PASSKEY);
        if let Some(store) = &self.store {
            command.env("QUELL_STORE", store);
        }
        command
    }

    /// Runs a command to its end.
    pub(super) fn quell(&self, args: &[&str]) -> Answer {
        Answer::of(&mut self.command(args))
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        self.quell(&all).ok().json()
    }

    fn start(&self, args: &[&str]) -> Process {
        let mut command = self.command(args);
        command.args(["--log", "quell=debug", "--log-format", "json"]);
        // Every server of a test has a port of its own.
        command.env("QUELL_LISTEN", "127.0.0.1:0");
        Process::start(command)
    }

    /// HTTP and a worker in one process.
    pub(super) fn serve(&self) -> Server {
        let mut process = self.start(&["serve"]);
        let address = Address(process.http_address());
        process.line("startup.swept");
        Server { process, address }
    }

    /// One process with HTTP and a worker, and further ones with workers.
    pub(super) fn serve_with(&self, processes: usize) -> Server {
        let mut process = self.start(&["serve", "--processes", &processes.to_string()]);
        let address = Address(process.http_address());
        for _ in 0..processes {
            process.line("startup.swept");
        }
        Server { process, address }
    }

    /// Takes messages in and answers none.
    pub(super) fn serve_only(&self) -> Server {
        let mut process = self.start(&["serve", "--no-work"]);
        let address = Address(process.http_address());
        Server { process, address }
    }

    /// Answers, and has no address.
    pub(super) fn work(&self) -> Server {
        let mut process = self.start(&["work"]);
        process.line("startup.swept");
        Server { process, address: Address::default() }
    }

    /// What the model was asked with, the latest turn of each request.
    pub(super) fn questions(&self) -> Vec<String> {
        self.model.asked().iter().map(question).collect()
    }

    /// Waits until the model was asked so often.
    pub(super) fn asked(&self, count: usize) -> Vec<Asked> {
        until(&format!("{count} questions to the model; {:#?}", self.questions()), || {
            self.model.asked().len() >= count
        });
        self.model.asked()
    }

    /// Waits for this many replies.
    pub(super) fn delivered(&self, count: usize) {
        until(&format!("{count} replies"), || self.providers.delivered().len() >= count);
    }

    /// Waits for this many replies, and for one too many.
    pub(super) fn replies(&self, count: usize) -> Vec<Received> {
        self.delivered(count);
        self.idle();
        let delivered = self.providers.delivered();
        assert_eq!(delivered.len(), count, "{delivered:#?}");
        delivered
    }

    /// Waits until no conversation has anything to do.
    pub(super) fn idle(&self) {
        until("nothing is left to do", || items(&self.json(&["lanes"])).is_empty());
    }

    /// The entries of a conversation.
    pub(super) fn entries(&self, customer: &str) -> Vec<Value> {
        self.json(&["chat", "show", customer])["entries"].as_array().unwrap().clone()
    }

    /// Who said what, in one line each.
    pub(super) fn said(&self, customer: &str) -> Vec<String> {
        let line = |entry: &Value| {
            format!("{}: {}", entry["role"].as_str().unwrap(), entry["text"].as_str().unwrap())
        };
        self.entries(customer).iter().map(line).collect()
    }

    /// The file of a bot on SQLite.
    pub(super) fn database(&self) -> Connection {
        let connection = Connection::open(self.folder.path("quell.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    /// Moves the clock of the file: real waits at their real length, without waiting for them.
    pub(super) fn move_clock(&self, seconds: i64) {
        let sql = "UPDATE meta SET clock_offset = clock_offset + ?1";
        self.database().execute(sql, [seconds * 1_000]).unwrap();
    }

    /// A number that the file knows.
    pub(super) fn number(&self, sql: &str) -> i64 {
        self.database().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Stops a process between two of its own turns at the database: stopped in one of them, nobody would pass it.
    pub(super) fn freeze(&self, server: &Server) {
        let connection = self.database();
        let turn = std::fs::File::open(self.folder.path("quell.db-lock")).unwrap();
        until("the database is free", || turn.try_lock().is_ok());
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        server.signal(Signal::STOP);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", server.process.pid())).unwrap();
        until("it stops", || stat().rsplit_once(") ").unwrap().1.starts_with('T'));
        connection.execute_batch("ROLLBACK").unwrap();
    }
}

/// Where a server takes webhooks in.
#[derive(Debug, Clone, Default)]
pub(super) struct Address(String);

impl Address {
    /// A webhook; no status when nobody answered.
    pub(super) fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(&self.0).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (address, length) = (&self.0, body.len());
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nConnection: close\r\n\
             {headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    }

    /// A message is taken in, as `curl -d` sends it.
    pub(super) fn takes(&self, body: &str) {
        assert!(self.may_take(body), "{body}");
    }

    /// Whether somebody took it in.
    pub(super) fn may_take(&self, body: &str) -> bool {
        self.post("/webhook", &[FORM], body) == Some(200)
    }
}

/// One process of a bot. Killed when it is dropped.
pub(super) struct Server {
    process: Process,
    pub(super) address: Address,
}

impl Server {
    pub(super) fn takes(&self, body: &str) {
        self.address.takes(body);
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// What it has logged so far under this name.
    pub(super) fn logged(&mut self, name: &str) -> Vec<Value> {
        named(self.process.said(), name)
    }

    /// Waits for a line of its log.
    pub(super) fn line(&mut self, text: &str) -> String {
        self.process.line(text)
    }

    /// At once, as a crash; what it had logged.
    pub(super) fn kill(self) -> Log {
        self.process.signal(Signal::KILL);
        Log(self.process.end().1)
    }

    /// It must end well; what it had logged.
    pub(super) fn stop(self) -> Log {
        Log(self.process.stop())
    }
}

/// What one or more processes have logged.
pub(super) struct Log(Vec<Line>);

impl Log {
    pub(super) fn of(servers: Vec<Server>) -> Log {
        Log(servers.into_iter().flat_map(|server| server.stop().0).collect())
    }

    pub(super) fn named(&self, name: &str) -> Vec<Value> {
        named(&self.0, name)
    }

    /// How the messages of a customer met their lane, in the order of their numbers.
    pub(super) fn met(&self, customer: &str) -> Vec<String> {
        let mut buffered = self.named("event.buffered");
        buffered.retain(|line| line["queue"] == "chat" && line["key"] == key(customer));
        buffered.sort_by_key(|line| line["seq"].as_u64());
        buffered.iter().map(|line| line["lane"].as_str().unwrap().to_owned()).collect()
    }

    /// Nothing went wrong.
    pub(super) fn is_calm(&self) -> bool {
        let lines = self.0.iter().filter_map(|line| serde_json::from_str::<Value>(line.text()).ok());
        lines.filter(|line| line["level"] == "WARN" || line["level"] == "ERROR").count() == 0
    }

    /// How many messages each run of a customer had, in the order of their tokens.
    pub(super) fn leases(&self, customer: &str) -> Vec<u64> {
        let mut acquired = self.named("lease.acquired");
        acquired.retain(|line| line["queue"] == "chat" && line["key"] == key(customer));
        acquired.sort_by_key(|line| line["token"].as_u64());
        acquired.iter().map(|line| line["events"].as_u64().unwrap()).collect()
    }
}

fn named(lines: &[Line], name: &str) -> Vec<Value> {
    let json = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line.text()).ok());
    json.filter(|line| line["message"] == name).collect()
}

pub(super) fn key(customer: &str) -> String {
    format!("wati:{customer}")
}

/// The body of the older system's own tests.
pub(super) fn message(customer: &str, text: &str) -> String {
    format!("{{\"waId\":\"{customer}\",\"text\":\"{text}\",\"passkey\":\"{PASSKEY}\"}}")
}

/// With the id that the provider gives to each message.
pub(super) fn identified(customer: &str, text: &str, id: &str) -> String {
    let id = format!(",\"whatsappMessageId\":\"{id}\",\"passkey\"");
    message(customer, text).replace(",\"passkey\"", &id)
}

/// Says what it was asked.
pub(super) fn echo() -> Script {
    Script::computed(|asked| format!("You said: {}", question(asked).replace('\n', " / ")))
}

/// The same, after a while.
pub(super) fn thinking(millis: u64) -> Script {
    Script { thinking: Duration::from_millis(millis), ..echo() }
}

fn question(asked: &Asked) -> String {
    asked.messages.last().unwrap().content.clone()
}

/// The texts that were joined, without their times.
pub(super) fn texts(question: &str) -> Vec<&str> {
    question
        .lines()
        .map(|line| match line.strip_prefix("[+").and_then(|rest| rest.split_once("s] ")) {
            Some((_, text)) => text,
            None => line,
        })
        .collect()
}

/// How many seconds after the first one each text came.
pub(super) fn seconds(question: &str) -> Vec<u64> {
    let times = question.lines().filter_map(|line| line.strip_prefix("[+")?.split_once("s] "));
    times.map(|(seconds, _)| seconds.parse().unwrap()).collect()
}

/// Waits for a while in which nothing may happen.
pub(super) fn meanwhile(time: Duration, mut is_so: impl FnMut() -> bool, what: &str) {
    let watch = Watch::start();
    while watch.elapsed() < time {
        assert!(is_so(), "{what}");
        millis(20);
    }
}

fn store(kind: Kind) -> Option<String> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let own = format!("bot{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
    let with = |url: String, what: &str| {
        let joint = if url.contains('?') { '&' } else { '?' };
        format!("{url}{joint}{what}={own}")
    };
    match kind {
        Kind::Sqlite => None,
        Kind::Postgres => Some(with(quell_test_servers::postgres_url(), "pool=4&schema")),
        Kind::Redis => Some(with(quell_test_servers::redis_url(), "prefix")),
    }
}
