//! A process's turn at the file: a lock on a side file, taken before `BEGIN IMMEDIATE`.
//!
//! SQLite's own busy handler lets some processes starve for seconds; this lock is granted in the order of asking. It is for
//! fairness only, SQLite's lock is what keeps writers apart. So whoever waits longer than a writer may (the holder was
//! stopped by SIGSTOP, or its machine's disk hangs) goes on without it and lets SQLite decide: a process that was stopped
//! between two transactions is in nobody's way, and behind one that was stopped inside one the caller is told `unavailable`.
//!
//! The system's lock has no time limit. A thread therefore waits for it, only when it is not free at once, and tells when it
//! has it. While that thread is behind a holder that does not move, nobody waits for it again.

use std::fs::{File, TryLockError};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

pub(crate) struct Turn {
    patience: Duration,
    shared: Arc<Shared>,
    has_waiter: bool,
    held: bool,
}

struct Shared {
    file: File,
    waiter: Mutex<Waiter>,
    changed: Condvar,
}

/// What the thread is about that waits for the lock on behalf of the writer. One that is behind a holder that never moves
/// ends with the process.
enum Waiter {
    Idle,
    /// The writer waits for it.
    Asked,
    /// It has the lock, or cannot have it.
    Answers(io::Result<()>),
    /// The writer has not waited for the end of it: the lock is of no use any more when it comes.
    Behind,
    /// The store was closed.
    Closed,
}

impl Turn {
    pub(crate) fn new(file: File, patience: Duration) -> Turn {
        let shared = Shared { file, waiter: Mutex::new(Waiter::Idle), changed: Condvar::new() };
        Turn { patience, shared: Arc::new(shared), has_waiter: false, held: false }
    }

    /// Returns when it is this process's turn, or when it has waited long enough for one.
    pub(crate) fn take(&mut self) -> io::Result<()> {
        if self.is_behind() {
            return Ok(());
        }
        match self.shared.file.try_lock() {
            Ok(()) => self.held = true,
            Err(TryLockError::WouldBlock) => self.held = self.wait()?,
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(())
    }

    pub(crate) fn give_up(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.held) { self.shared.file.unlock() } else { Ok(()) }
    }

    /// Whether the waiter is still behind a holder for which nobody waits any longer.
    fn is_behind(&self) -> bool {
        matches!(*self.shared.waiter(), Waiter::Behind)
    }

    /// True with the lock, false without it after long enough.
    fn wait(&mut self) -> io::Result<bool> {
        if !self.has_waiter {
            let shared = self.shared.clone();
            std::thread::Builder::new().name("quell-turn".to_owned()).spawn(move || shared.serve())?;
            self.has_waiter = true;
        }
        let mut waiter = self.shared.waiter();
        *waiter = Waiter::Asked;
        self.shared.changed.notify_all();
        let asked = |waiter: &mut Waiter| matches!(waiter, Waiter::Asked);
        let (mut waiter, _) =
            self.shared.changed.wait_timeout_while(waiter, self.patience, asked).expect(NO_PANIC);
        match std::mem::replace(&mut *waiter, Waiter::Idle) {
            Waiter::Answers(locked) => locked.map(|()| true),
            _ => {
                *waiter = Waiter::Behind;
                tracing::warn!(
                    waited = ?self.patience,
                    "another process holds its turn at the file and does not go on; writing without waiting for it"
                );
                Ok(false)
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.shared.waiter() = Waiter::Closed;
        self.shared.changed.notify_all();
    }
}

const NO_PANIC: &str = "no panic happens while the waiter is locked";

impl Shared {
    fn waiter(&self) -> MutexGuard<'_, Waiter> {
        self.waiter.lock().expect(NO_PANIC)
    }

    /// What the thread does: waits for the lock whenever it is asked to.
    fn serve(&self) {
        loop {
            let unasked = |waiter: &mut Waiter| !matches!(waiter, Waiter::Asked | Waiter::Closed);
            let waiter = self.changed.wait_while(self.waiter(), unasked).expect(NO_PANIC);
            if matches!(*waiter, Waiter::Closed) {
                return;
            }
            drop(waiter);
            let locked = self.file.lock();
            let mut waiter = self.waiter();
            match *waiter {
                Waiter::Asked => {
                    *waiter = Waiter::Answers(locked);
                    self.changed.notify_all();
                }
                // An unused lock would keep everybody else from theirs.
                _ => {
                    let _ = self.file.unlock();
                    if matches!(*waiter, Waiter::Behind) {
                        *waiter = Waiter::Idle;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(120);
    const SHORT: Duration = Duration::from_millis(20);

    fn two(patience: Duration) -> (tempfile::TempDir, File, Turn) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db-lock");
        let other = File::create(&path).unwrap();
        let turn = Turn::new(File::open(&path).unwrap(), patience);
        (folder, other, turn)
    }

    fn is_free(other: &File) -> bool {
        let free = other.try_lock().is_ok();
        if free {
            other.unlock().unwrap();
        }
        free
    }

    #[test]
    fn a_free_turn_is_had_at_once_and_without_a_thread() {
        let (_folder, other, mut turn) = two(LONG);
        turn.take().unwrap();
        assert!(turn.held && !turn.has_waiter && !is_free(&other));
        turn.give_up().unwrap();
        assert!(is_free(&other));
    }

    #[test]
    fn a_turn_is_waited_for_while_the_holder_goes_on() {
        let (_folder, other, mut turn) = two(LONG);
        for _ in 0..3 {
            other.lock().unwrap();
            std::thread::scope(|scope| {
                let taken = scope.spawn(|| turn.take());
                other.unlock().unwrap();
                taken.join().unwrap().unwrap();
            });
            assert!(turn.held && !turn.is_behind() && !is_free(&other));
            turn.give_up().unwrap();
            assert!(is_free(&other));
        }
    }

    #[test]
    fn nobody_waits_for_ever_behind_a_holder_that_does_not_move_and_nobody_waits_twice() {
        let (folder, other, mut turn) = two(SHORT);
        other.lock().unwrap();
        turn.take().unwrap();
        assert!(!turn.held && turn.is_behind());
        turn.give_up().unwrap();
        let third = File::open(folder.path().join("db-lock")).unwrap();
        assert!(!is_free(&third), "the turn of the other was given up");
        // A second wait of this length would show.
        turn.patience = LONG;
        turn.take().unwrap();
        assert!(!turn.held && turn.is_behind());
        // The holder goes on: what comes too late for us is not kept from the third.
        other.unlock().unwrap();
        while turn.is_behind() || !is_free(&third) {
            std::thread::yield_now();
        }
        turn.take().unwrap();
        assert!(turn.held && !is_free(&third));
    }

    #[test]
    fn a_store_that_was_closed_while_it_waited_leaves_no_lock() {
        let (_folder, other, mut turn) = two(SHORT);
        other.lock().unwrap();
        turn.take().unwrap();
        drop(turn);
        other.unlock().unwrap();
        while !is_free(&other) {
            std::thread::yield_now();
        }
    }
}
