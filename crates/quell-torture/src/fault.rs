//! The kinds of faults, by their names on the command line.

use serde::Serialize;

/// What is done to the processes, to the server, to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// SIGKILL of a process, at any instruction.
    Kill,
    /// SIGSTOP of a worker for longer than its lease, then SIGCONT.
    Zombie,
    /// The server that torture started is killed and started again.
    Restart,
    /// Connections to the server are cut, slowed, silenced, or lose the answer to a question that arrived.
    Tcp,
    /// The disk has no room left for a while.
    FullDisk,
    /// Flushes of a process answer EIO; the process is killed afterwards.
    Fsync,
    /// The file system stops at once and forgets what was not flushed; everybody is killed and it is mounted again.
    PowerCut,
    /// Everybody is killed and lives on with a boot clock that is ahead.
    Clock,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 8] = [
        Fault::Kill,
        Fault::Zombie,
        Fault::Restart,
        Fault::Tcp,
        Fault::FullDisk,
        Fault::Fsync,
        Fault::PowerCut,
        Fault::Clock,
    ];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Zombie => "zombie",
            Fault::Restart => "restart",
            Fault::Tcp => "tcp",
            Fault::FullDisk => "full-disk",
            Fault::Fsync => "fsync",
            Fault::PowerCut => "power-cut",
            Fault::Clock => "clock",
        }
    }

    /// The fault of this name.
    pub fn of(name: &str) -> Option<Fault> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name)
    }

    /// How often it is drawn among the others: what kills everybody, or takes a second, is rarer.
    pub(crate) fn weight(self) -> u64 {
        match self {
            Fault::Kill => 60,
            Fault::Zombie => 10,
            Fault::Tcp => 10,
            Fault::Fsync => 3,
            Fault::PowerCut => 3,
            Fault::FullDisk | Fault::Clock => 2,
            Fault::Restart => 1,
        }
    }
}
