//! One running server, whichever it is: its folder, its port, its process and its log.
//!
//! The promise: while the value lives, the port and the data stay the same through any number of stops, kills and
//! starts; when it goes, so do the process and the folder. What the servers differ in (arguments, signals, the words
//! with which they report that they are ready) is handed in as a [`Kind`].

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::clock::wait_for;
use crate::folder::Folder;
use crate::port;
use crate::process::{self, Pid, Send};

/// A start includes recovery after a kill, on a machine that may be busy with the rest of the tests.
const START: Duration = Duration::from_secs(60);
/// A graceful stop writes a checkpoint.
const STOP: Duration = Duration::from_secs(60);
/// Ending at once writes nothing.
const END: Duration = Duration::from_secs(10);
/// How many ports are tried when others keep being faster.
const PORTS: usize = 20;

type Launch = Box<dyn Fn(&Path, u16) -> io::Result<Command> + std::marker::Send + Sync>;

/// What one product differs in from another.
pub(crate) struct Kind {
    /// As people call it.
    pub(crate) name: &'static str,
    /// In small letters: what the log says when the server takes connections.
    pub(crate) ready: &'static str,
    /// Ends the server in an orderly way without waiting for its clients.
    pub(crate) stop: Send,
    /// Ends it at once; its data are about to be deleted.
    pub(crate) end: Send,
    /// The command that starts it in this folder on this port.
    pub(crate) launch: Launch,
}

pub(crate) struct Server {
    kind: Kind,
    folder: Folder,
    port: u16,
    process: Option<Child>,
}

/// Why a start failed, as far as it makes a difference.
enum Refusal {
    PortTaken,
    Other(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl Server {
    /// Starts on a free port, on another one if somebody was faster.
    pub(crate) fn start(kind: Kind, folder: Folder) -> io::Result<Self> {
        let mut server = Self { kind, folder, port: 0, process: None };
        for _ in 0..PORTS {
            server.port = port::free()?;
            match server.launch() {
                Ok(()) => return Ok(server),
                Err(Refusal::PortTaken) => {}
                Err(Refusal::Other(error)) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("{} found its port taken {PORTS} times in a row", server.kind.name),
        ))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(Pid::from_child)
    }

    /// Starts the stopped or killed server with the port and the data it had.
    pub(crate) fn start_again(&mut self) -> io::Result<()> {
        if self.is_running()? {
            return Err(io::Error::other(format!("{} is still running", self.kind.name)));
        }
        self.launch().map_err(|refusal| match refusal {
            Refusal::Other(error) => error,
            Refusal::PortTaken => io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("somebody took port {} while {} was down", self.port, self.kind.name),
            ),
        })
    }

    /// Orderly, without waiting for clients. A server that is down stays down.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        process::send(pid, self.kind.stop);
        if self.wait(STOP)? {
            return Ok(());
        }
        let error = self.problem(&format!("did not stop within {} s", STOP.as_secs()), 0);
        self.kill()?;
        Err(error)
    }

    /// As a power cut would: no process of the server runs another instruction.
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        // Frozen first, so that it starts no child between the look and the kill.
        process::freeze(pid);
        let children = process::children(pid);
        process::send(pid, Send::Kill);
        for child in &children {
            process::send(*child, Send::Kill);
        }
        if self.wait(END)? && process::all_gone(&children, END) {
            return Ok(());
        }
        Err(io::Error::other(format!("{} survived being killed", self.kind.name)))
    }

    fn is_running(&mut self) -> io::Result<bool> {
        if let Some(child) = &mut self.process
            && child.try_wait()?.is_some()
        {
            self.process = None;
        }
        Ok(self.process.is_some())
    }

    /// Whether the process ended within the limit.
    fn wait(&mut self, limit: Duration) -> io::Result<bool> {
        let ended = wait_for(limit, || match self.is_running() {
            Ok(true) => None,
            Ok(false) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        });
        ended.transpose().map(|ended| ended.is_some())
    }

    fn launch(&mut self) -> Result<(), Refusal> {
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let said_before = log.metadata()?.len();
        self.process = Some(self.spawn(log)?);
        if let Some(pid) = self.pid() {
            self.folder.watch(pid)?;
        }
        let started = wait_for(START, || self.look(said_before));
        started.unwrap_or_else(|| {
            let error = self.problem(&format!("was not ready within {} s", START.as_secs()), said_before);
            Err(Refusal::Other(error))
        })
    }

    fn spawn(&self, log: File) -> io::Result<Child> {
        let mut command = (self.kind.launch)(self.folder(), self.port)?;
        command.current_dir(self.folder()).process_group(0).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            io::Error::new(error.kind(), format!("cannot start {} ({program}): {error}", self.kind.name))
        })
    }

    /// One look at a server that is starting. Its own log is asked first: an answer on the port might come from
    /// another server that was faster.
    fn look(&mut self, said_before: u64) -> Option<Result<(), Refusal>> {
        match self.is_running() {
            Err(error) => return Some(Err(error.into())),
            Ok(false) => return Some(Err(self.why_ended(said_before))),
            Ok(true) => {}
        }
        let said = self.said_since(said_before).to_lowercase();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let ready = said.contains(self.kind.ready) && TcpStream::connect_timeout(&address, END).is_ok();
        ready.then_some(Ok(()))
    }

    fn why_ended(&self, said_before: u64) -> Refusal {
        match self.said_since(said_before).to_lowercase().contains("address already in use") {
            true => Refusal::PortTaken,
            false => Refusal::Other(self.problem("ended while starting", said_before)),
        }
    }

    fn said_since(&self, said_before: u64) -> String {
        let bytes = std::fs::read(self.log()).unwrap_or_default();
        let from = usize::try_from(said_before).unwrap_or(usize::MAX).min(bytes.len());
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    fn problem(&self, what: &str, said_before: u64) -> io::Error {
        let said = self.said_since(said_before);
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n  ");
        io::Error::other(format!("{} {what}; its log ends with:\n  {last}", self.kind.name))
    }
}

impl Drop for Server {
    /// The folder goes after this, when nothing writes into it any more.
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            process::send(pid, self.kind.end);
        }
        if !self.wait(END).unwrap_or(false) {
            let _ = self.kill();
        }
    }
}

/// What every server can be told, in the same words.
macro_rules! controls {
    ($server:ty) => {
        impl $server {
            /// On the loopback address; stays the same as long as the value lives.
            #[must_use]
            pub fn port(&self) -> u16 {
                self.server.port()
            }

            /// Where the server keeps everything it keeps.
            #[must_use]
            pub fn folder(&self) -> &std::path::Path {
                self.server.folder()
            }

            /// What the server wrote since its first start.
            #[must_use]
            pub fn log(&self) -> std::path::PathBuf {
                self.server.log()
            }

            /// The main process, unless the server is down.
            #[must_use]
            pub fn process_id(&self) -> Option<u32> {
                self.server.pid().and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
            }

            /// Stops the server in an orderly way; its clients are cut off. Stopping twice is fine.
            ///
            /// # Errors
            ///
            /// When it does not end in time; it is killed then.
            pub fn stop(&mut self) -> std::io::Result<()> {
                self.server.stop()
            }

            /// Kills all processes of the server in the middle of whatever they do, as a power cut would.
            ///
            /// # Errors
            ///
            /// When the system cannot tell that they are gone.
            pub fn kill(&mut self) -> std::io::Result<()> {
                self.server.kill()
            }

            /// Starts a stopped or killed server on the same port with the same data, and waits until it is ready.
            ///
            /// # Errors
            ///
            /// When it runs already, or does not start.
            pub fn start_again(&mut self) -> std::io::Result<()> {
                self.server.start_again()
            }

            /// [`Self::stop`] and [`Self::start_again`].
            ///
            /// # Errors
            ///
            /// As for these two.
            pub fn restart(&mut self) -> std::io::Result<()> {
                self.stop()?;
                self.start_again()
            }
        }
    };
}
pub(crate) use controls;
