//! Ends a server whose owner could not.
//!
//! A destructor does not run when a process is killed or interrupted. A small shell therefore waits at the other end
//! of a pipe; when the owner dies in whatever way, the pipe closes and the shell ends the server and deletes its
//! folder. It is in a process group of its own, as the server is, so Ctrl+C in a terminal reaches neither directly.
//!
//! The rejected alternative, a signal at the death of the parent, follows the *thread* that started the server, and
//! test threads end early.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::process::{Pid, Send};

#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
}

impl Guard {
    /// Watches over a folder and the process that will be named later.
    pub(crate) fn over(folder: &Path, end_at_once: Send) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("guard.sh"), "guard"]).arg(folder).arg(end_at_once.name());
        // Not in the folder, and not holding a pipe that somebody reads to its end.
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { shell: command.spawn()? })
    }

    /// From now on this process is the server.
    pub(crate) fn watch(&mut self, pid: Pid) -> io::Result<()> {
        self.say(&format!("pid {pid}"))
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        match &mut self.shell.stdin {
            Some(pipe) => writeln!(pipe, "{line}"),
            None => Ok(()),
        }
    }

    /// Everything is cleaned up; the guard may go.
    pub(crate) fn dismiss(&mut self) {
        let _ = self.say("done");
        self.shell.stdin = None;
        let _ = self.shell.wait();
    }
}
