//! Signals to processes, and which processes belong to a server.

use std::process::Command;
use std::time::Duration;

pub(crate) use rustix::process::Pid;
use rustix::process::Signal;

use crate::clock::wait_for;

/// The system delivers a signal at once, unless the process is deep in a disk write.
const FREEZE: Duration = Duration::from_secs(5);

/// The signals that servers give a meaning to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Send {
    Interrupt,
    Terminate,
    Quit,
    Kill,
    Freeze,
}

impl Send {
    /// As the shell's `kill -s` knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "INT",
            Self::Terminate => "TERM",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::Freeze => "STOP",
        }
    }
}

/// Sends a signal. That the process is already gone is no error: this is always what the sender wants in the end.
pub(crate) fn send(pid: Pid, what: Send) {
    let signal = match what {
        Send::Interrupt => Signal::INT,
        Send::Terminate => Signal::TERM,
        Send::Quit => Signal::QUIT,
        Send::Kill => Signal::KILL,
        Send::Freeze => Signal::STOP,
    };
    let _ = rustix::process::kill_process(pid, signal);
}

/// Stops a process where it stands, and waits until it does: it will start no other process any more.
pub(crate) fn freeze(pid: Pid) {
    send(pid, Send::Freeze);
    wait_for(FREEZE, || stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z')).then_some(()));
}

/// The processes that this one started and that still run.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    match std::fs::read_dir("/proc") {
        Ok(entries) => entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
            .filter(|pid| {
                stat(*pid).is_some_and(|(state, of)| of == parent.as_raw_nonzero().get() && state != 'Z')
            })
            .collect(),
        // Systems without /proc have this program instead.
        Err(_) => {
            let listed = Command::new("pgrep").arg("-P").arg(parent.to_string()).output();
            let listed = listed.map(|output| output.stdout).unwrap_or_default();
            let text = String::from_utf8_lossy(&listed);
            text.split_whitespace().filter_map(|word| word.parse().ok().and_then(Pid::from_raw)).collect()
        }
    }
}

/// Waits until none of these processes runs; whether that came true.
pub(crate) fn all_gone(pids: &[Pid], limit: Duration) -> bool {
    wait_for(limit, || pids.iter().all(|pid| !runs(*pid)).then_some(())).is_some()
}

/// Whether the process exists and is more than an exit code that nobody has fetched.
pub(crate) fn runs(pid: Pid) -> bool {
    match stat(pid) {
        Some((state, _)) => state != 'Z',
        None => {
            !std::path::Path::new("/proc/self").exists() && rustix::process::test_kill_process(pid).is_ok()
        }
    }
}

/// State letter and parent. The name before them is in brackets and may itself hold brackets and spaces.
fn stat(pid: Pid) -> Option<(char, i32)> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_found_until_it_is_killed() {
        let ourselves = rustix::process::getpid();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(children(ourselves).contains(&pid));
        assert!(runs(pid));
        send(pid, Send::Kill);
        // Dead, though nobody has asked for its exit code yet.
        assert!(all_gone(&[pid], Duration::from_secs(10)));
        assert!(!children(ourselves).contains(&pid));
        child.wait().unwrap();
        assert!(!runs(pid));
    }
}
