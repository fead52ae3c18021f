//! SIGINT and SIGTERM: the first asks for a clean end, the second for an immediate one. SIGHUP asks to read the configuration
//! again; where it comes because the terminal was closed it asks like SIGTERM, and where it was told beforehand to be ignored,
//! as `nohup` does, it is.

use std::io;

/// A signal that asks this process to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Interrupt,
    Terminate,
}

impl Stop {
    /// What a shell reports for a process that ended by this signal.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Stop::Interrupt => 130,
            Stop::Terminate => 143,
        }
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Stop(Stop),
    Reload,
}

#[cfg(unix)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: Option<tokio::signal::unix::Signal>,
    /// Somebody was looking when it began.
    in_terminal: bool,
}

#[cfg(unix)]
impl Signals {
    /// From here on the signals come to [`Signals::next`] and no longer end the process by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if hangup_is_ignored() { None } else { Some(signal(SignalKind::hangup())?) },
            in_terminal: is_in_terminal(),
        })
    }

    pub(crate) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop(Stop::Interrupt),
            _ = self.terminate.recv() => Asked::Stop(Stop::Terminate),
            // A terminal that was closed is one no longer.
            () = hung_up(&mut self.hangup) => match self.in_terminal && !is_in_terminal() {
                true => Asked::Stop(Stop::Terminate),
                false => Asked::Reload,
            },
        }
    }

    /// For whoever has nothing to read again.
    pub(crate) async fn next_stop(&mut self) -> Stop {
        loop {
            if let Asked::Stop(stop) = self.next().await {
                return stop;
            }
        }
    }
}

#[cfg(unix)]
fn is_in_terminal() -> bool {
    use std::io::IsTerminal;
    io::stdin().is_terminal() || io::stderr().is_terminal()
}

#[cfg(unix)]
async fn hung_up(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// What the kernel says of this process; where it says nothing, a hang-up is not ignored.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
pub(crate) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Signals)
    }

    pub(crate) async fn next(&mut self) -> Asked {
        Asked::Stop(self.next_stop().await)
    }

    pub(crate) async fn next_stop(&mut self) -> Stop {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Stop::Interrupt,
            Err(_) => std::future::pending().await,
        }
    }
}
