//! The handler `exec`: a program is started for each batch.
//!
//! The envelope goes to its standard input; the arguments are fixed by the configuration and no shell is involved, so
//! nothing of an event is ever interpreted. The program sees an allow-list of our environment, the `QUELL_…`
//! variables of its run, and in `TRACEPARENT` and `TRACESTATE` the trace that it belongs to. Exit code 0 is succeeded, 65 failed, anything else, a signal or the time limit is tried again
//! (the lists are settings). The end of stderr is the error text; a last line of stdout that is a JSON object is the report
//! (`report.rs`).
//!
//! The promise: the program never outlives its run. It has a process group of its own, which gets SIGTERM, a second of
//! grace and SIGKILL at the time limit and when its work is not wanted any more (newer events interrupted the run, or an
//! operator cancelled it), and SIGKILL at once when the handler's future is dropped (lease lost, grace of a
//! stopping worker over) or the program ends and leaves others behind. A stopping worker lets it go on within its grace:
//! most programs are done by then, and asking them to end would throw their work away. A program that starts a session of its own escapes this, and
//! so does everything when the worker itself is killed with SIGKILL: the token tells such leftovers apart.
//!
//! Called by the worker between claim and settle; leases and heartbeats are the worker's.

use std::collections::BTreeMap;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use process_wrap::tokio::{ChildWrapper, CommandWrap, KillOnDrop};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::time::timeout;

use quell_core::attempt::AttemptReport;
use quell_core::limits;
use quell_core::outcome::{Outcome, keep_tail};

use super::report;
use crate::config::{DurationText, ExecSettings};
use crate::handler::{Handler, Run};
use crate::trace::Trace;

/// Between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// After SIGKILL an interrupted program is waited for this long before its worker lets go of it.
const KILL_MARGIN: Duration = Duration::from_millis(500);
/// After the program has ended and its group was killed, what still holds its pipes has left the group; it is not
/// waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// What every program needs to find its files and its language; nothing here is ever a secret.
const ENV_ALWAYS: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR", "SYSTEMROOT"];

/// Starts a program for each batch.
#[derive(Debug)]
pub struct Exec {
    settings: ExecSettings,
    /// The part of our own environment that programs receive.
    env: Vec<(String, String)>,
}

impl Exec {
    /// `env` is the environment of this process.
    pub fn new(settings: ExecSettings, env: &BTreeMap<String, String>) -> Self {
        let allowed = |name: &str| {
            ENV_ALWAYS.contains(&name)
                || name.starts_with("LC_")
                || settings.env.iter().any(|listed| listed == name)
        };
        let env = env.iter().filter(|(name, _)| allowed(name));
        Exec { env: env.map(|(n, v)| (n.clone(), v.clone())).collect(), settings }
    }

    fn command(&self, run: &Run) -> CommandWrap {
        let (program, arguments) = self.settings.argv.split_first().expect("checked when settings were made");
        let trace = Trace::for_handler(run);
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("QUELL_RUN_ID", run.run_id().to_string())
            .env("QUELL_QUEUE", run.queue().as_str())
            .env("QUELL_KEY", run.key().as_str())
            .env("QUELL_TENANT", run.tenant().as_str())
            .env("QUELL_ATTEMPT", run.attempt().to_string())
            .env("QUELL_TOKEN", run.token().to_string())
            .env("QUELL_REVISION", run.revision().to_string())
            .env("QUELL_FIRED_BY", run.fired_by().as_str())
            .env("QUELL_EVENTS", run.events().len().to_string())
            .env("TRACEPARENT", &trace.parent)
            .envs(trace.state.filter(|state| !state.contains('\0')).map(|state| ("TRACESTATE", state)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut wrap = CommandWrap::from(command);
        wrap.wrap(KillOnDrop);
        #[cfg(unix)]
        wrap.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(windows)]
        wrap.wrap(process_wrap::tokio::JobObject);
        wrap
    }
}

#[async_trait]
impl Handler for Exec {
    async fn handle(&self, run: &Run) -> Outcome {
        let mut envelope = match run.envelope() {
            Ok(text) => text.into_bytes(),
            Err(e) => return Outcome::failed(format!("an event of this run is not stored as JSON: {e}")),
        };
        envelope.push(b'\n');
        let program = &self.settings.argv[0];
        let mut group = match self.command(run).spawn() {
            Ok(child) => Group { child, over: false },
            // Not failed: a missing program is usually a deployment that is not finished.
            Err(e) => {
                let told = AttemptReport { request: Some(self.started()), ..AttemptReport::default() };
                return Outcome::retry(format!("cannot start {program:?}: {e}")).with_report(told);
            }
        };
        let (mut stdout, mut stderr) =
            (Tail::new(limits::EXEC_OUTPUT_BYTES_MAX), Tail::new(limits::ERROR_BYTES_MAX));
        let ended = {
            let (input, output, errors) = group.pipes();
            let pump = async {
                tokio::join!(feed(input, envelope), stdout.fill(output), stderr.fill(errors));
            };
            let pump = std::pin::pin!(pump);
            self.watch(run, &mut group, pump).await
        };
        let (stdout, stderr) = (stdout.text(), stderr.text());
        let told = self.told(ended.as_ref().ok(), &stdout, &stderr);
        let outcome = match ended {
            Ok(ended) => self.judge(ended, &stdout, &stderr),
            Err(e) => Outcome::retry(format!("cannot wait for {program:?}: {e}")),
        };
        outcome.with_report(told)
    }

    fn stop_grace(&self) -> Duration {
        TERM_GRACE + KILL_MARGIN
    }
}

/// How the program came to its end.
enum Ended {
    /// By itself.
    Alone(ExitStatus),
    /// We ended it: whatever it then exited with says nothing about its work.
    TimeLimit,
    /// Its work is not wanted any more; we ended it.
    Interrupted,
}

impl Exec {
    /// Moves the pipes until the program ends, and sees to it that it does.
    async fn watch(
        &self,
        run: &Run,
        group: &mut Group,
        mut pump: std::pin::Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Ended> {
        let mut pumped = false;
        let limited = timeout(self.settings.timeout, async {
            loop {
                tokio::select! {
                    // In this order, so that a program which has already ended is judged by what it answered.
                    biased;
                    status = group.child.wait() => return status.map(Ended::Alone),
                    () = run.interrupted().cancelled() => return Ok(Ended::Interrupted),
                    () = &mut pump, if !pumped => pumped = true,
                }
            }
        });
        let ended = match limited.await {
            Ok(ended) => ended?,
            Err(_) => Ended::TimeLimit,
        };
        if !matches!(ended, Ended::Alone(_)) && group.terminate() {
            // Its last words are still read while it ends.
            let _ = timeout(TERM_GRACE, async {
                loop {
                    tokio::select! {
                        _ = group.child.wait() => return,
                        () = &mut pump, if !pumped => pumped = true,
                    }
                }
            })
            .await;
        }
        // Also after a good end: what the program left behind in its group would otherwise outlive the run.
        group.kill();
        group.child.wait().await?;
        if !pumped && !matches!(ended, Ended::Interrupted) {
            let _ = timeout(DRAIN_MAX, pump).await;
        }
        Ok(ended)
    }

    /// Arguments may be secrets, so only their number is told.
    fn started(&self) -> String {
        let (program, arguments) = self.settings.argv.split_first().expect("checked when settings were made");
        match arguments.len() {
            0 => program.clone(),
            1 => format!("{program} with 1 argument"),
            n => format!("{program} with {n} arguments"),
        }
    }

    /// What people see of the attempt.
    fn told(&self, ended: Option<&Ended>, stdout: &str, stderr: &str) -> AttemptReport {
        let exit_code = match ended {
            Some(Ended::Alone(status)) => status.code(),
            _ => None,
        };
        let end = |text: &str| match text.trim_end() {
            "" => None,
            text => Some(keep_tail(text, limits::REPORT_TEXT_BYTES_MAX)),
        };
        let (response, stderr) = (end(stdout), end(stderr));
        AttemptReport {
            request: Some(self.started()),
            exit_code,
            response,
            stderr,
            ..AttemptReport::default()
        }
    }

    fn judge(&self, ended: Ended, stdout: &str, stderr: &str) -> Outcome {
        let settings = &self.settings;
        let status = match ended {
            Ended::TimeLimit => {
                let limit = DurationText::show(settings.timeout);
                return Outcome::retry(error_text(&format!("the time limit of {limit} passed"), stderr));
            }
            Ended::Interrupted => return Outcome::interrupted(),
            Ended::Alone(status) => status,
        };
        let outcome = match status.code() {
            Some(0) => Outcome::succeeded(),
            Some(code) => {
                let text = error_text(&format!("exit code {code}"), stderr);
                let listed = settings.retry_exit.as_ref().is_none_or(|codes| codes.contains(&code));
                if listed && !settings.fail_exit.contains(&code) {
                    Outcome::retry(text)
                } else {
                    Outcome::failed(text)
                }
            }
            None => Outcome::retry(error_text(&signal_text(status), stderr)),
        };
        report::add(outcome, stdout.trim_end().lines().next_back().unwrap_or(""))
    }
}

/// The child with everything it starts. Dropping it kills them all.
struct Group {
    child: Box<dyn ChildWrapper>,
    /// Everything in the group has been killed; its number may soon belong to somebody else.
    over: bool,
}

type Pipes = (Option<ChildStdin>, Option<tokio::process::ChildStdout>, Option<tokio::process::ChildStderr>);

impl Group {
    fn pipes(&mut self) -> Pipes {
        (self.child.stdin().take(), self.child.stdout().take(), self.child.stderr().take())
    }

    /// Asks the group to end; false where there is no way of asking.
    fn terminate(&self) -> bool {
        #[cfg(unix)]
        return self.child.signal(15).is_ok();
        #[cfg(not(unix))]
        return false;
    }

    /// An error means that nobody is left, which is what was wanted.
    fn kill(&mut self) {
        if !self.over {
            let _ = self.child.start_kill();
            self.over = true;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the envelope. A program that does not read it all is free to: a broken pipe is no error.
async fn feed(input: Option<ChildStdin>, envelope: Vec<u8>) {
    if let Some(mut input) = input {
        let _ = input.write_all(&envelope).await;
        let _ = input.shutdown().await;
    }
}

/// The last bytes of a stream, whatever its length.
struct Tail {
    bytes: Vec<u8>,
    max: usize,
}

impl Tail {
    fn new(max: usize) -> Self {
        Tail { bytes: Vec::new(), max }
    }

    /// Reads to the end and keeps the end. An error of the pipe is the end, too.
    async fn fill(&mut self, stream: Option<impl AsyncRead + Unpin>) {
        let Some(mut stream) = stream else { return };
        let mut piece = vec![0; 16 * 1024];
        while let Ok(n @ 1..) = stream.read(&mut piece).await {
            self.bytes.extend_from_slice(&piece[..n]);
            // Twice the bound before a cut, so that a long stream is not moved byte by byte.
            if self.bytes.len() > 2 * self.max {
                self.cut();
            }
        }
        self.cut();
    }

    fn cut(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.max);
        self.bytes.drain(..surplus);
    }

    fn text(&mut self) -> String {
        self.cut();
        // No store keeps NUL in a text, and an error text must not fail because of one.
        String::from_utf8_lossy(&self.bytes).replace('\0', "\u{fffd}")
    }
}

/// What happened and the end of stderr, together within the bound of an error text.
fn error_text(what: &str, stderr: &str) -> String {
    match stderr.trim() {
        "" => what.to_owned(),
        text => {
            format!("{what}: {}", keep_tail(text, limits::ERROR_BYTES_MAX.saturating_sub(what.len() + 2)))
        }
    }
}

fn signal_text(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("killed by signal {signal}");
    }
    format!("ended without an exit code ({status})")
}

#[cfg(all(test, unix))]
mod tests;
