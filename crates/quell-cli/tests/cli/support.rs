//! Folders, answers and processes for the tests.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use quell::clock::{RealTime, Time};
use quell::quell_core::clock::Tick;
use serde_json::Value;

/// Everything here takes milliseconds; on a noisy machine it may take seconds, and never this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with everything in it, removed at the end.
pub(crate) struct Folder {
    path: PathBuf,
    /// Removes the folder, unless it is somebody else's.
    _kept: Option<tempfile::TempDir>,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let kept = tempfile::tempdir().unwrap();
        Folder { path: kept.path().to_path_buf(), _kept: Some(kept) }
    }

    pub(crate) fn at(path: &Path) -> Folder {
        Folder { path: path.to_path_buf(), _kept: None }
    }

    /// With a quell.toml.
    pub(crate) fn with_config(text: &str) -> Folder {
        let folder = Folder::new();
        folder.write("quell.toml", text);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_quell"));
        command.args(args);
        command
    }

    /// A program in this folder, with nothing of the environment that would steer quell.
    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.path).env("USER", "tester");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["QUELL_", "OTEL_", "TRACE"].iter().any(|ours| text.starts_with(ours))
                || ["DATABASE_URL", "REDIS_URL", "RUST_LOG", "NO_COLOR", "PORT"].iter().any(|n| name == *n)
            {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn quell(&self, args: &[&str]) -> Answer {
        Answer::of(&mut self.command(args))
    }

    /// Runs a command with something on its stdin.
    pub(crate) fn quell_with(&self, args: &[&str], input: &str) -> Answer {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        // From a thread, because a full pipe in the other direction would hold us up.
        let feeder = std::thread::spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        Answer::from(args, output)
    }

    /// Starts a command that stays.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        self.start_with(args, &[])
    }

    /// The same with variables of its own.
    pub(crate) fn start_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Process {
        // Whoever runs the tests may ignore a hang-up, as `nohup` does, and children would inherit that.
        let mut command = self.program("env");
        command.arg("--default-signal=HUP").arg(env!("CARGO_BIN_EXE_quell")).args(args);
        // Every server of a test has a port of its own.
        command.env("QUELL_LISTEN", "127.0.0.1:0").envs(variables.iter().copied());
        Process::start(command)
    }

    /// The answer of a command that must succeed, as JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        self.quell(&all).ok().json()
    }

    /// Sends an event; the receipt.
    pub(crate) fn send(&self, queue: &str, key: &str, payload: &str) -> Value {
        self.json(&["send", queue, key, payload])
    }

    /// Asks until the answer is right.
    pub(crate) fn until(&self, what: &str, args: &[&str], right: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        until(what, || {
            last = self.json(args);
            right(&last)
        });
        last
    }
}

/// Asks until it is so. The asking itself is the pause.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let time = RealTime::new();
    while !is_so() {
        assert!(time.tick().since(Tick::default()) < PATIENCE, "waited too long for: {what}");
        std::thread::yield_now();
    }
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) args: String,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    pub(crate) fn of(command: &mut Command) -> Answer {
        let args: Vec<String> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = command.stdin(Stdio::null()).output().unwrap();
        Answer::from(&args, output)
    }

    pub(crate) fn from(args: &[&str], output: std::process::Output) -> Answer {
        Answer {
            args: args.join(" "),
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn ok(self) -> Answer {
        self.exits(0)
    }

    pub(crate) fn exits(self, code: i32) -> Answer {
        assert_eq!(self.code, code, "quell {}\nstdout: {}\nstderr: {}", self.args, self.out, self.err);
        self
    }

    /// Its stdout has this.
    pub(crate) fn says(self, text: &str) -> Answer {
        assert!(
            self.out.contains(text),
            "quell {}: no {text:?} in stdout:\n{}{}",
            self.args,
            self.out,
            self.err
        );
        self
    }

    /// Its stderr has this.
    pub(crate) fn complains(self, text: &str) -> Answer {
        assert!(self.err.contains(text), "quell {}: no {text:?} in stderr:\n{}", self.args, self.err);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|e| panic!("{} is not JSON: {e}\n{}", self.args, self.out))
    }
}

/// A command that stays. Killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<Line>,
    /// Everything that was read so far.
    pub(crate) seen: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Out(String),
    Err(String),
}

impl Line {
    pub(crate) fn text(&self) -> &str {
        match self {
            Line::Out(text) | Line::Err(text) => text,
        }
    }
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Process {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (tell, lines) = channel();
        let tell_err = tell.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = tell.send(Line::Out(line));
            }
        });
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                let _ = tell_err.send(Line::Err(line));
            }
        });
        Process { child, lines, seen: Vec::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line with this text.
    pub(crate) fn line(&mut self, text: &str) -> String {
        let time = RealTime::new();
        loop {
            let left = PATIENCE.saturating_sub(time.tick().since(Tick::default()));
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.text().contains(text) {
                        return line.text().to_owned();
                    }
                }
                Err(_) => panic!("no line with {text:?}; seen: {:#?}", self.seen),
            }
        }
    }

    /// Everything that it has said so far, without waiting.
    pub(crate) fn said(&mut self) -> &[Line] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Waits until it works.
    pub(crate) fn started(mut self) -> Process {
        self.line("startup.swept");
        self
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        signal_to(self.pid(), signal);
    }

    /// Waits for its end, with everything that it said.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<Line>) {
        let time = RealTime::new();
        loop {
            // Whoever has something to say again and again does not end either.
            match self.lines.recv_timeout(PATIENCE.saturating_sub(time.tick().since(Tick::default()))) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end; seen: {:#?}", self.seen),
            }
        }
        let status = self.child.wait().unwrap();
        (status, std::mem::take(&mut self.seen))
    }

    /// SIGTERM, and it must end well.
    pub(crate) fn stop(self) -> Vec<Line> {
        self.signal(rustix::process::Signal::TERM);
        let (status, lines) = self.end();
        assert_eq!(status.code(), Some(0), "{lines:#?}");
        lines
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn signal_to(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A process that has ended and was not yet waited for is gone, too.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// The items of a listing.
pub(crate) fn items(page: &Value) -> &[Value] {
    page["items"].as_array().map_or(&[], Vec::as_slice)
}

/// A request of plain HTTP to a server of this machine; the status and the body. Hand-written: a client library would be
/// half of the compile time of these tests.
pub(crate) fn http(
    address: &str,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: &str,
) -> (u16, String) {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {token}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

impl Process {
    /// At once, as a crash.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Where it serves HTTP, as it says at its start.
    pub(crate) fn http_address(&mut self) -> String {
        let line = self.line("takes events in");
        line.split("http://").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    }
}
