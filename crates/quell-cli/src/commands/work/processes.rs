//! `--processes N`: further processes of this program, looked after by the first one.
//!
//! Each has a process group of its own, so a Ctrl-C of the terminal reaches it once, through us, and not twice. Its
//! stdin is a pipe that we hold: if we are killed, it closes, and the child drains and ends by itself. A child that
//! dies while work goes on is started again after a pause.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use quell::clock;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Staff;
use crate::args::Global;
use crate::failure::{self, Failure};
use crate::signals::{Asked, Signals, Stop};

/// Before a child that died is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// What we were told.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// To stop: how often, and how the last time.
    stops: u32,
    stop: Option<Stop>,
    /// To read the configuration again: how often.
    reloads: u32,
}

/// See [`Processes::reloads`].
pub(super) struct Reloads(watch::Sender<Told>);

impl Reloads {
    pub(super) fn ask(&self) {
        self.0.send_modify(|told| told.reloads += 1);
    }
}

pub(super) struct Processes {
    told: watch::Sender<Told>,
    children: JoinSet<Result<(), String>>,
}

impl Processes {
    pub(super) fn start(staff: &Staff, until_idle: bool, global: &Global) -> Result<Self, Failure> {
        let told = watch::Sender::new(Told::default());
        let mut children = JoinSet::new();
        let arguments = arguments(staff, until_idle, global);
        for _ in 1..staff.processes {
            children.spawn(look_after(arguments.clone(), told.subscribe()));
        }
        Ok(Processes { told, children })
    }

    /// Passes a signal on.
    pub(super) fn signal(&self, stop: Stop) {
        self.told.send_modify(|told| *told = Told { stops: told.stops + 1, stop: Some(stop), ..*told });
    }

    /// How each of them is made to read the configuration again.
    pub(super) fn reloads(&self) -> Reloads {
        Reloads(self.told.clone())
    }

    /// Waits for all of them; signals that come meanwhile are passed on. The answer is 0 if all ended well.
    pub(super) async fn join(mut self, signals: &mut Signals, mut asked: u32) -> u8 {
        let mut code = 0;
        loop {
            tokio::select! {
                ended = self.children.join_next() => match ended {
                    None => return code,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(problem))) => {
                        tracing::error!("{problem}");
                        code = failure::FAILED;
                    }
                    Some(Err(_)) => code = failure::FAILED,
                },
                stop = signals.next_stop() => {
                    asked += 1;
                    self.signal(stop);
                    if asked > 1 {
                        code = stop.exit_code();
                    }
                }
            }
        }
    }
}

/// The command line of a child: ours, as `work`.
fn arguments(staff: &Staff, until_idle: bool, global: &Global) -> Vec<String> {
    let mut list = vec!["work".to_owned(), "--looked-after".to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            list.push(format!("--{name}={value}"));
        }
    };
    option("store", global.store.clone());
    option("config", global.config.as_ref().map(|path| path.to_string_lossy().into_owned()));
    option("log", global.log.clone());
    option("log-format", Some(global.log_format.as_str().to_owned()));
    option("concurrency", staff.concurrency.map(|n| n.to_string()));
    option("tenant", staff.tenant.clone());
    option("handler", staff.handler.clone());
    option("grace", staff.grace.map(quell::config::DurationText::show));
    for queue in &staff.queues {
        option("queue", Some(queue.clone()));
    }
    if staff.show_payloads {
        list.push("--show-payloads".to_owned());
    }
    if until_idle {
        list.push("--until-idle".to_owned());
    }
    list
}

/// Keeps one child running until it ends well or we are told to stop.
async fn look_after(arguments: Vec<String>, mut told: watch::Receiver<Told>) -> Result<(), String> {
    loop {
        if told.borrow().stops > 0 {
            return Ok(());
        }
        let mut child = spawn(&arguments).map_err(|e| format!("cannot start another process: {e}"))?;
        let pid = child.id();
        let status =
            wait(&mut child, &mut told).await.map_err(|e| format!("cannot wait for a process: {e}"))?;
        let stopping = told.borrow().stops > 0;
        match (status.success(), stopping) {
            (true, _) => return Ok(()),
            (false, true) if told.borrow().stops > 1 || ended_by_our_signal(status) => return Ok(()),
            (false, true) => return Err(format!("process {} did not end well: {status}", pid.unwrap_or(0))),
            (false, false) => {
                tracing::warn!(pid, %status, "a worker process died; another is started");
                tokio::select! {
                    () = clock::sleep(AGAIN) => {}
                    Ok(_) = told.wait_for(|told| told.stops > 0) => return Ok(()),
                }
            }
        }
    }
}

fn spawn(arguments: &[String]) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::piped()).kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    command.spawn()
}

/// Waits for the child and passes on what we are told meanwhile.
async fn wait(child: &mut Child, told: &mut watch::Receiver<Told>) -> std::io::Result<ExitStatus> {
    // Kept here, because `wait` of the child would close it.
    let pipe = child.stdin.take();
    let mut passed = 0;
    // It has read the configuration as it is now.
    let mut reloaded = told.borrow().reloads;
    let status = loop {
        // Looked at before waiting, too: we may have been told while the child was being started.
        let Told { stops, stop, reloads } = *told.borrow_and_update();
        while passed < stops {
            passed += 1;
            pass_on(child, Asked::Stop(stop.unwrap_or(Stop::Terminate)));
        }
        if reloaded < reloads {
            reloaded = reloads;
            pass_on(child, Asked::Reload);
        }
        tokio::select! {
            status = child.wait() => break status,
            changed = told.changed() => {
                if changed.is_err() {
                    break child.wait().await;
                }
            }
        }
    };
    drop(pipe);
    status
}

/// A child that was told to stop before it listened to signals has done nothing yet and holds no lease.
#[cfg(unix)]
fn ended_by_our_signal(status: ExitStatus) -> bool {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    [rustix::process::Signal::INT, rustix::process::Signal::TERM]
        .iter()
        .any(|ours| signal == Some(ours.as_raw()))
}

#[cfg(not(unix))]
fn ended_by_our_signal(_status: ExitStatus) -> bool {
    true
}

#[cfg(unix)]
fn pass_on(child: &mut Child, asked: Asked) {
    let signal = match asked {
        Asked::Stop(Stop::Interrupt) => rustix::process::Signal::INT,
        Asked::Stop(Stop::Terminate) => rustix::process::Signal::TERM,
        Asked::Reload => rustix::process::Signal::HUP,
    };
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended in this moment; `wait` tells.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(not(unix))]
fn pass_on(child: &mut Child, asked: Asked) {
    if let Asked::Stop(_) = asked {
        let _ = child.start_kill();
    }
}
