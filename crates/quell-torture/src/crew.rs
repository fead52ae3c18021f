//! The processes under test: started, stopped, woken and killed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::error::StoreError;
use quell_core::store::Store;
use rustix::process::{Pid, Signal};

use crate::chance::Chance;
use crate::child::{Role, log_path};
use crate::clock;
use crate::judge::Broken;
use crate::roles::pause;

const STORE: &str = "QUELL_TORTURE_STORE";
const ROLE: &str = "QUELL_TORTURE_ROLE";
const LOG: &str = "QUELL_TORTURE_LOG";
const SYNC: &str = "QUELL_TORTURE_SYNC";
/// A drain has its own limit of a minute of waits; this is for a machine that has much else to do.
const DRAIN_MAX: Duration = Duration::from_secs(240);
/// The longest that everybody is waited for to begin; somebody who is stopped, or meets a full disk, may not.
const BEGIN_MAX: Duration = Duration::from_secs(20);
/// What the embedded store says when a flush failed at a commit, whose fate it cannot know then.
const RESTART: &str = "restart the process";
/// Lines that a report shows of what a process said.
const SAID_LINES: usize = 20;

/// How the stores are opened, and which program is a child. The command line knows both; this crate knows no store.
#[async_trait]
pub trait Door: Send + Sync {
    /// Opens a store, tried once.
    async fn open(&self, url: &str, sync: Synchronous) -> Result<Arc<dyn Store>, StoreError>;

    /// The program that calls [`Task::from_environment`] and does it.
    fn child(&self) -> Command;
}

/// What a file is flushed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// As Quell always does.
    #[default]
    Full,
    /// SQLite's `synchronous = NORMAL`, to show that a power cut is noticed.
    Normal,
}

/// What a child was started for.
#[derive(Debug, Clone)]
pub struct Task {
    /// May hold a password; therefore not on the command line.
    pub store: String,
    pub role: Role,
    pub log: PathBuf,
    pub sync: Synchronous,
}

impl Task {
    /// Nothing when nobody started this process for one.
    pub fn from_environment() -> Option<Task> {
        let var = |name| std::env::var(name).ok();
        Some(Task {
            store: var(STORE)?,
            role: Role::of(&var(ROLE)?)?,
            log: PathBuf::from(std::env::var_os(LOG)?),
            sync: if var(SYNC).as_deref() == Some("normal") {
                Synchronous::Normal
            } else {
                Synchronous::Full
            },
        })
    }
}

/// Sends a signal to a child.
pub fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("a child has a process number"))?;
    Ok(rustix::process::kill_process(pid, signal)?)
}

/// Kills a child; an error when it had ended by itself.
pub fn end(child: &mut Child) -> io::Result<()> {
    if let Some(status) = child.try_wait()? {
        return Err(io::Error::other(format!("it had ended by itself: {status}")));
    }
    child.kill()?;
    child.wait().map(|_| ())
}

struct Member {
    role: Role,
    index: usize,
    child: Child,
    /// Stopped until then.
    until: Option<Duration>,
}

/// The processes of one round. None outlives it, also when it fails.
pub(crate) struct Crew<'a> {
    door: &'a dyn Door,
    url: String,
    logs: PathBuf,
    sync: Synchronous,
    /// The plan hurts the disk.
    supervised: bool,
    /// The boot clock of new processes is ahead by this.
    ahead: Duration,
    started: usize,
    members: Vec<Member>,
}

impl<'a> Crew<'a> {
    pub(crate) fn new(
        door: &'a dyn Door,
        url: String,
        logs: &Path,
        sync: Synchronous,
        supervised: bool,
    ) -> Self {
        Crew {
            door,
            url,
            logs: logs.to_owned(),
            sync,
            supervised,
            ahead: Duration::ZERO,
            started: 0,
            members: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self, role: Role) -> Result<(), Broken> {
        let member = self.spawn(role)?;
        self.members.push(member);
        Ok(())
    }

    fn spawn(&mut self, role: Role) -> Result<Member, Broken> {
        self.started += 1;
        let index = self.started;
        let mut command = self.command();
        command
            .env(STORE, &self.url)
            .env(ROLE, role.as_str())
            .env(LOG, log_path(&self.logs, role.as_str(), index))
            .env(SYNC, if self.sync == Synchronous::Normal { "normal" } else { "full" })
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let said = std::fs::File::create(self.said(role, index)).map_err(tool("a log cannot be made"))?;
        let child = command.stderr(said).spawn().map_err(tool("a process cannot be started"))?;
        Ok(Member { role, index, child, until: None })
    }

    /// In a time namespace of its own when its boot clock is to be ahead; the process stays the same one.
    fn command(&self) -> Command {
        let child = self.door.child();
        if self.ahead.is_zero() {
            return child;
        }
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", &self.ahead.as_secs().to_string()]);
        command.arg(child.get_program()).args(child.get_args());
        command
    }

    fn said(&self, role: Role, index: usize) -> PathBuf {
        self.logs.join(format!("{}-{index}.said", role.as_str()))
    }

    /// From now on everybody lives later. Only between two generations: one clock for all processes of a machine.
    pub(crate) fn ahead_by(&mut self, more: Duration) {
        self.ahead += more;
    }

    /// A process that ended by itself has found something; but where disks are hurt, one whose store has told it to be
    /// restarted is, as its supervisor would. Says how many were.
    pub(crate) fn check(&mut self) -> Result<u64, Broken> {
        let mut restarted = 0;
        for at in 0..self.members.len() {
            let asked = self.members[at].child.try_wait().map_err(tool("a process cannot be asked"))?;
            let Some(status) = asked else { continue };
            let (role, broken) = (self.members[at].role, self.ended(&self.members[at], &status.to_string()));
            match &broken {
                Broken::Ended { said, .. } if self.supervised && said.contains(RESTART) => {
                    self.members[at] = self.spawn(role)?;
                    restarted += 1;
                }
                _ => return Err(broken),
            }
        }
        Ok(restarted)
    }

    fn ended(&self, member: &Member, status: &str) -> Broken {
        let said = std::fs::read_to_string(self.said(member.role, member.index)).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        // What it died of comes before the way there.
        let said = lines[..lines.len().min(SAID_LINES)].join("\n");
        Broken::Ended { role: member.role.as_str(), status: status.to_owned(), said }
    }

    /// Somebody who is awake and at work; of a role when one is named.
    pub(crate) fn draw(&self, chance: &mut Chance, role: Option<Role>) -> Option<usize> {
        // Sometimes also one that is only just starting: it may be killed while it opens the store.
        let any = chance.percent(10);
        let fits = |member: &Member| {
            let awake = member.until.is_none() && role.is_none_or(|r| member.role == r);
            awake && (any || self.has_begun(member))
        };
        let fitting: Vec<usize> = (0..self.members.len()).filter(|at| fits(&self.members[*at])).collect();
        (!fitting.is_empty()).then(|| *chance.pick(&fitting))
    }

    /// Whether it has asked the store for anything yet.
    fn has_begun(&self, member: &Member) -> bool {
        let log = log_path(&self.logs, member.role.as_str(), member.index);
        std::fs::metadata(log).is_ok_and(|about| about.len() > 0)
    }

    /// Waits until everybody works, on a busy machine too: who is killed before that proves nothing.
    pub(crate) async fn at_work(&mut self) -> Result<u64, Broken> {
        let limit = clock::now() + BEGIN_MAX;
        let mut restarted = 0;
        while clock::now() < limit && !self.members.iter().all(|member| self.has_begun(member)) {
            restarted += self.check()?;
            pause(Duration::from_millis(10)).await;
        }
        Ok(restarted)
    }

    pub(crate) fn pid(&self, at: usize) -> u32 {
        self.members[at].child.id()
    }

    /// Kills one and starts another of its role.
    pub(crate) fn kill(&mut self, at: usize) -> Result<(), Broken> {
        let role = self.members[at].role;
        let _ = self.members[at].child.kill();
        self.members[at].child.wait().map_err(tool("a killed process does not end"))?;
        self.members[at] = self.spawn(role)?;
        Ok(())
    }

    /// Kills everybody, whatever they have come to, and says who was there.
    pub(crate) fn kill_all(&mut self) -> Result<Vec<Role>, Broken> {
        let mut roles = Vec::new();
        for mut member in self.members.drain(..) {
            let _ = member.child.kill();
            member.child.wait().map_err(tool("a killed process does not end"))?;
            roles.push(member.role);
        }
        roles.sort_unstable();
        Ok(roles)
    }

    /// Stops one until then.
    pub(crate) fn stop(&mut self, at: usize, until: Duration) -> Result<(), Broken> {
        signal(&self.members[at].child, Signal::STOP).map_err(tool("a process cannot be stopped"))?;
        self.members[at].until = Some(until);
        Ok(())
    }

    /// Stops everybody where they are; for those who are about to die.
    pub(crate) fn freeze(&self) -> Result<(), Broken> {
        for member in &self.members {
            signal(&member.child, Signal::STOP).map_err(tool("a process cannot be stopped"))?;
        }
        Ok(())
    }

    pub(crate) fn stopped(&self) -> usize {
        self.members.iter().filter(|member| member.until.is_some()).count()
    }

    /// Wakes those whose time has come, or all; says how many.
    pub(crate) fn wake(&mut self, all: bool) -> Result<u64, Broken> {
        let now = clock::now();
        let mut woken = 0;
        for member in &mut self.members {
            if member.until.is_some_and(|until| all || until <= now) {
                member.until = None;
                signal(&member.child, Signal::CONT).map_err(tool("a process cannot be woken"))?;
                woken += 1;
            }
        }
        Ok(woken)
    }

    /// Finishes what is left, by a process that lives at the same time as the others did.
    pub(crate) async fn drain(&mut self) -> Result<(), Broken> {
        let mut member = self.spawn(Role::Drain)?;
        let limit = clock::now() + DRAIN_MAX;
        loop {
            match member.child.try_wait().map_err(tool("a process cannot be asked"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.ended(&member, &status.to_string())),
                None if clock::now() > limit => {
                    self.members.push(member);
                    return Err(Broken::Stuck(format!(
                        "the drain has not ended after {} s",
                        DRAIN_MAX.as_secs()
                    )));
                }
                None => pause(Duration::from_millis(20)).await,
            }
        }
    }
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

fn tool(what: &'static str) -> impl Fn(io::Error) -> Broken {
    move |error| Broken::Tool(format!("{what}: {error}"))
}
