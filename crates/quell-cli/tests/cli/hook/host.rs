//! A host with a user, an agent and its transcripts, all in one folder.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Tick;
use quell_transcripts::spool::Spool;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Answer, PATIENCE, Process, items, signal_to};

/// How long things take, by a clock that never goes back.
pub(crate) struct Watch(RealTime);

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch(RealTime::new())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.tick().since(Tick::default())
    }
}

/// For the times that a test is about.
pub(crate) fn pause(time: Duration) {
    let (_tell, told) = channel::<()>();
    let _ = told.recv_timeout(time);
}

pub(crate) fn millis(count: u64) {
    pause(Duration::from_millis(count));
}

/// Looks until it is so, without taking the processor from those who are waited for.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let watch = Watch::start();
    while !is_so() {
        assert!(watch.elapsed() < PATIENCE, "waited too long for: {what}");
        millis(20);
    }
}

pub(crate) struct Host {
    folder: tempfile::TempDir,
    /// `DEBOUNCE_SECONDS`, if it is set.
    debounce: Option<String>,
    /// Flags of every hook.
    flags: Vec<String>,
}

/// A process that a hook has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts the worker, and again if it dies.
    Keeper,
    Worker,
}

impl Host {
    /// With a window that is short enough for a test.
    pub(crate) fn new() -> Host {
        Host::debouncing(Some("0.3"))
    }

    pub(crate) fn debouncing(seconds: Option<&str>) -> Host {
        let host = Host {
            folder: tempfile::tempdir().unwrap(),
            debounce: seconds.map(str::to_owned),
            flags: Vec::new(),
        };
        for name in ["home", "work", "claude/projects/p"] {
            std::fs::create_dir_all(host.path(name)).unwrap();
        }
        host
    }

    /// With a database, so that the first worker need not make it.
    pub(crate) fn with_database(self) -> Host {
        let nothing = self.path("work").display().to_string();
        self.quell(&["sessions", "import", &nothing]).ok();
        self
    }

    /// Another host's server keeps the sessions.
    pub(crate) fn sending_to(mut self, url: &str) -> Host {
        self.flags = vec!["--server".to_owned(), url.to_owned()];
        self
    }

    /// A database on a server keeps the sessions.
    pub(crate) fn keeping_in(mut self, url: &str) -> Host {
        self.flags = vec!["--store".to_owned(), url.to_owned()];
        self
    }

    pub(crate) fn configured(self, text: &str) -> Host {
        std::fs::create_dir_all(self.path("config/quell")).unwrap();
        std::fs::write(self.path("config/quell/quell.toml"), text).unwrap();
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data/quell")
    }

    /// Where hooks append to.
    pub(crate) fn database(&self) -> PathBuf {
        match self.flags.get(1) {
            Some(url) => self.data().join(format!("outbox-{}.db", quell_transcripts::forward::digest(url))),
            None => self.data().join("quell.db"),
        }
    }

    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.database().display())
    }

    pub(crate) fn log(&self) -> String {
        let mut name = self.database().into_os_string();
        name.push("-hook.log");
        std::fs::read_to_string(name).unwrap_or_default()
    }

    pub(crate) fn spool(&self) -> Spool {
        Spool::beside(&self.database())
    }

    fn equip(&self, command: &mut Command) {
        command.env_clear().current_dir(self.path("work")).env("USER", "tester");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path("home")).env("CLAUDE_CONFIG_DIR", self.path("claude"));
        command.env("XDG_DATA_HOME", self.path("data")).env("XDG_CONFIG_HOME", self.path("config"));
        if let Some(seconds) = &self.debounce {
            command.env("DEBOUNCE_SECONDS", seconds);
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quell"));
        command.args(args);
        self.equip(&mut command);
        command
    }

    pub(crate) fn quell(&self, args: &[&str]) -> Answer {
        Answer::of(&mut self.command(args))
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        self.quell(&all).ok().json()
    }

    /// A command that stays; `serve` gets a port of its own.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        let mut command = Command::new("env");
        command.arg("--default-signal=HUP").arg(env!("CARGO_BIN_EXE_quell")).args(args);
        self.equip(&mut command);
        command.env("QUELL_LISTEN", "127.0.0.1:0");
        Process::start(command)
    }

    /// A command with something on its standard input.
    pub(crate) fn feed(&self, command: &mut Command, input: &[u8]) -> Answer {
        let args: Vec<String> = command.get_args().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // Whoever is asked has to read it: an agent that cannot say what it has to say takes that for an error.
        child.stdin.take().unwrap().write_all(input).unwrap();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Answer::from(&args, child.wait_with_output().unwrap())
    }

    /// What an agent does at an event. It must hear nothing.
    pub(crate) fn hook(&self, event: &Value) {
        let mut args = vec!["hook"];
        args.extend(self.flags.iter().map(String::as_str));
        let said = self.feed(&mut self.command(&args), event.to_string().as_bytes()).ok();
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    }

    pub(crate) fn event(&self, name: &str, session: &str) -> Value {
        json!({
            "session_id": session, "hook_event_name": name, "cwd": "/srv/example/coin-shop",
            "transcript_path": self.transcript(session),
        })
    }

    /// The end of a turn, which is most of what agents tell.
    pub(crate) fn stop(&self, session: &str) {
        self.hook(&self.event("Stop", session));
    }

    pub(crate) fn transcript(&self, session: &str) -> PathBuf {
        self.path("claude/projects/p").join(format!("{session}.jsonl"))
    }

    /// The agent writes the lines with these numbers.
    pub(crate) fn write(&self, session: &str, numbers: std::ops::Range<usize>) {
        let lines: String = numbers.map(|number| line(session, number)).collect();
        append(&self.transcript(session), &lines);
    }

    /// A transcript whose pass takes long enough to be met in its middle.
    pub(crate) fn write_much(&self, session: &str) {
        let text = std::fs::read_to_string(fixture("transcripts/large_2mb.jsonl")).unwrap();
        append(&self.transcript(session), &text.replace("6513270e-269e-4d37-b2a7-4de452e6b438", session));
    }

    /// As much again, said anew.
    pub(crate) fn write_as_much_again(&self, session: &str) {
        let text = std::fs::read_to_string(self.transcript(session)).unwrap();
        append(&self.transcript(session), &text.replace("\"uuid\":\"", "\"uuid\":\"again-"));
    }

    /// A fixture as the transcript of its session, whose id is returned.
    pub(crate) fn place(&self, name: &str, session: &str) {
        std::fs::copy(fixture("transcripts").join(name), self.transcript(session)).unwrap();
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(self.database(), flags).ok()?;
        connection.busy_timeout(PATIENCE).unwrap();
        Some(connection)
    }

    /// A number that the database knows; none while it does not know the table.
    pub(crate) fn number(&self, sql: &str) -> i64 {
        let Some(connection) = self.connection() else { return 0 };
        connection.query_row(sql, [], |row| row.get(0)).unwrap_or(0)
    }

    pub(crate) fn messages(&self, session: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM transcripts_message WHERE session_id = '{session}'"))
    }

    pub(crate) fn hook_events(&self, session: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM transcripts_event WHERE session_id = '{session}'"))
    }

    /// Waits until a session has so many messages, and nothing more to do.
    pub(crate) fn stored(&self, session: &str, messages: i64) {
        until(&format!("{messages} messages of {session}; there are {}", self.messages(session)), || {
            self.messages(session) == messages
        });
    }

    /// Waits until nobody works any more, and makes sure that nothing was left.
    pub(crate) fn quiet(&self) {
        // A worker that a hook has only just started is not to be seen yet.
        let done = || self.workers().is_empty() && self.spool().is_empty().unwrap();
        until(&format!("the worker ends and leaves nothing in the spool\n{}", self.log()), done);
        let waiting = "SELECT count(*) FROM lane WHERE o_number IS NOT NULL OR r_number IS NOT NULL";
        assert_eq!(self.number(waiting), 0, "something was left in the queue\n{}", self.log());
        assert!(!self.somebody_works(), "the lock was left");
    }

    /// Whether the lock is held. Not while hooks run: they would find it held by us.
    pub(crate) fn somebody_works(&self) -> bool {
        quell_transcripts::keeper::alone(&self.database()).unwrap().is_none()
    }

    /// The processes that hooks of this host have started, by the folder that they were given.
    pub(crate) fn processes(&self) -> Vec<(u32, Role)> {
        let Ok(folder) = self.data().canonicalize() else { return Vec::new() };
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(line) = std::fs::read(entry.path().join("cmdline")) else { continue };
            let mut words = line.split(|byte| *byte == 0).skip(1);
            let role = match (words.next(), words.next()) {
                (Some(b"hook"), Some(b"keep")) => Role::Keeper,
                (Some(b"hook"), Some(b"work")) => Role::Worker,
                _ => continue,
            };
            if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|its| its == folder) {
                found.push((pid, role));
            }
        }
        found
    }

    pub(crate) fn workers(&self) -> Vec<u32> {
        self.processes().into_iter().map(|(pid, _)| pid).collect()
    }

    /// The one that works.
    pub(crate) fn worker(&self) -> u32 {
        let mut found = None;
        until("a worker", || {
            found = self.processes().iter().find(|(_, role)| *role == Role::Worker).map(|(pid, _)| *pid);
            found.is_some()
        });
        found.unwrap()
    }

    /// At once, the keeper first, so that it starts no other.
    pub(crate) fn kill_all(&self) {
        for wanted in [Role::Keeper, Role::Worker] {
            for (pid, _) in self.processes().into_iter().filter(|(_, role)| *role == wanted) {
                kill(pid);
            }
        }
    }

    /// Waits until the killed are gone with all that they held: a dying process has no command line any more, and still its
    /// locks.
    pub(crate) fn gone(&self) {
        until("they are gone", || self.workers().is_empty() && !self.somebody_works());
    }

    /// Holds the database in the middle of a run of a session: nobody gets on until this is dropped.
    pub(crate) fn in_the_middle(&self, session: &str) -> Held {
        self.in_the_middle_after(session, 0)
    }

    /// In the middle of a run that has a newer token than this.
    pub(crate) fn in_the_middle_after(&self, session: &str, token: i64) -> Held {
        let watch = Watch::start();
        until("the database", || self.database().exists());
        let connection = self.connection().unwrap();
        // Waiting would make us late: the database is free for some milliseconds only.
        connection.busy_timeout(Duration::ZERO).unwrap();
        let turn = self.turn();
        loop {
            if turn.try_lock().is_ok() {
                if let Some(held) = self.try_hold(&connection, session, token) {
                    return Held { connection, _turn: Some(turn), ..held };
                }
                turn.unlock().unwrap();
            }
            assert!(watch.elapsed() < PATIENCE, "no run of {session} was met\n{}", self.log());
            millis(1);
        }
    }

    /// What writers take turns by: whoever is stopped while we hold it is not stopped in its own turn, for which others wait
    /// for ten seconds.
    pub(crate) fn turn(&self) -> File {
        let mut name = self.database().into_os_string();
        name.push("-lock");
        File::open(name).unwrap()
    }

    fn try_hold(&self, connection: &Connection, session: &str, token: i64) -> Option<Held> {
        connection.execute_batch("BEGIN IMMEDIATE").ok()?;
        let sql = "SELECT r_token, r_claimed_at, r_lease_until FROM lane
                   WHERE lease_at IS NOT NULL AND key = ?1 AND r_token > ?2";
        let found = connection.query_row(sql, (session, token), |row| {
            Ok(Held {
                connection: Connection::open_in_memory()?,
                _turn: None,
                token: row.get(0)?,
                claimed_at: row.get(1)?,
                lease_until: row.get(2)?,
            })
        });
        if found.is_err() {
            connection.execute_batch("ROLLBACK").unwrap();
        }
        found.ok()
    }

    /// Stops the worker in the middle of a run: it holds its lease and does nothing.
    pub(crate) fn frozen(&self, session: &str) -> Frozen {
        let held = self.in_the_middle(session);
        let pid = self.worker();
        Frozen::stop(pid, held)
    }

    /// The runs of a session that ended, the first first.
    pub(crate) fn runs(&self, session: &str) -> Vec<Value> {
        let store = self.store();
        let page = self.json(&["--store", &store, "runs", "--queue", "transcripts", "--key", session]);
        let mut runs = items(&page).to_vec();
        runs.sort_by_key(|run| run["lo"].as_u64());
        runs
    }

    pub(crate) fn session(&self, id: &str) -> Value {
        self.json(&["session", id])
    }

    /// A worker of our own that holds a lock of its own: as if another host's clock had let it in.
    pub(crate) fn another_worker(&self) -> Process {
        self.start(&["--store", &self.store(), "work", "--until-idle"])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let watch = Watch::start();
        while !self.workers().is_empty() && watch.elapsed() < PATIENCE {
            self.kill_all();
        }
    }
}

/// What the store's clock says now, within some milliseconds.
pub(crate) fn now() -> i64 {
    Time::wall(&RealTime::new()).as_millis()
}

/// By how much the two may differ.
pub(crate) const CLOCKS_APART: i64 = 50;

/// The database, held by us in the middle of somebody's run.
pub(crate) struct Held {
    connection: Connection,
    /// Held as long as this lives.
    _turn: Option<File>,
    pub(crate) token: i64,
    pub(crate) claimed_at: i64,
    pub(crate) lease_until: i64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.connection.execute_batch("ROLLBACK");
    }
}

/// A worker that was stopped in the middle of its run.
pub(crate) struct Frozen {
    pub(crate) pid: u32,
    pub(crate) token: i64,
}

impl Frozen {
    pub(crate) fn stop(pid: u32, held: Held) -> Frozen {
        Frozen::stop_now(pid, held.token)
    }

    pub(crate) fn stop_now(pid: u32, token: i64) -> Frozen {
        signal_to(pid, Signal::STOP);
        until("the worker stops", || state(pid) == Some('T'));
        Frozen { pid, token }
    }

    pub(crate) fn go_on(self) {
        signal_to(self.pid, Signal::CONT);
    }
}

/// As the system calls it: running, sleeping, stopped.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// It may have ended by itself.
pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps/quell-transcripts/tests/fixtures").join(name)
}

/// One line of a transcript; people and agents take turns.
pub(crate) fn line(session: &str, number: usize) -> String {
    let uuid = format!("{session}-{number:05}");
    let text = format!("message {number} about word{number}");
    let stamp = format!("2025-10-08T08:{:02}:{:02}.000Z", number / 60 % 60, number % 60);
    let message = match number % 2 {
        0 => json!({ "role": "user", "content": text }),
        _ => json!({
            "role": "assistant", "id": format!("msg_{uuid}"), "type": "message", "model": "model-1",
            "content": [{ "type": "text", "text": text }],
            "usage": { "input_tokens": 3, "output_tokens": 2 },
        }),
    };
    let line = json!({
        "parentUuid": null, "isSidechain": false, "cwd": "/srv/example/coin-shop", "sessionId": session,
        "type": message["role"], "message": message, "uuid": uuid, "timestamp": stamp,
    });
    format!("{line}\n")
}

pub(crate) fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// Does it in several threads, and each number once.
pub(crate) fn in_parallel(count: usize, threads: usize, work: impl Fn(usize) + Sync) {
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    work(number);
                }
            });
        }
    });
}

/// Starts the worker of a hook by hand, with the lock that a hook would give it.
pub(crate) fn hook_worker(host: &Host, lock: File) -> std::process::Child {
    let mut command = host.command(&["hook", "work", "--store", &host.store()]);
    command.current_dir(host.data());
    command.stdin(Stdio::from(lock)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
