//! Keeping leases: one task for all runs of a worker, with one timer.
//!
//! Handlers never hold up a heartbeat: the moments at which drivers want to be woken stand in one ordered map, which is
//! filled before a handler starts, and this task works it off whatever the handlers and the worker's loop do (as long as
//! one thread of the runtime is free: a handler that blocks its thread should use a blocking task). Its one timer is set
//! anew only for a moment that is earlier than the one it waits for, so short runs cost two map operations and no timer.
//!
//! What a driver decides when it is woken (renew, stop the handler, settle again) is `quell-core/src/step`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use quell_core::clock::Tick;
use quell_core::step::RunInput;
use quell_core::store::{ExtendRequest, Store};
use tokio::sync::Notify;

use crate::clock::{Alarm, Time};
use crate::running::Running;

/// The heartbeats of one worker.
pub(crate) struct Heartbeats {
    store: Arc<dyn Store>,
    time: Arc<dyn Time>,
    due: Mutex<Due>,
    /// An earlier moment than the one the task sleeps until was entered.
    sooner: Notify,
}

#[derive(Default)]
struct Due {
    /// Who wants to be woken when; the number tells apart those of one moment.
    runs: BTreeMap<(Tick, u64), Arc<Running>>,
    /// Until when the task sleeps, perhaps for a run that has ended since.
    armed: Option<Tick>,
}

impl Heartbeats {
    pub(crate) fn new(store: Arc<dyn Store>, time: Arc<dyn Time>) -> Self {
        Heartbeats { store, time, due: Mutex::default(), sooner: Notify::new() }
    }

    pub(crate) fn now(&self) -> Tick {
        self.time.tick()
    }

    /// Enters a run, in place of its earlier entry. The caller holds the run's own lock, so the two agree.
    pub(crate) fn enter(&self, running: &Arc<Running>, before: Option<Tick>, at: Tick) {
        let mut due = self.due();
        if let Some(before) = before {
            due.runs.remove(&(before, running.number()));
        }
        due.runs.insert((at, running.number()), running.clone());
        let sooner = due.armed.is_none_or(|armed| at < armed);
        if sooner {
            due.armed = Some(at);
        }
        drop(due);
        if sooner {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn leave(&self, running: &Running, at: Tick) {
        self.due().runs.remove(&(at, running.number()));
    }

    /// Sends one renewal. Its own task, so that a slow answer delays no other run.
    pub(crate) fn extend(self: &Arc<Self>, running: &Arc<Running>, request: ExtendRequest) {
        let (heartbeats, running) = (self.clone(), running.clone());
        tokio::spawn(async move {
            let answer = heartbeats.store.extend(request).await;
            match &answer {
                Ok(beat) => running.known().tell(beat.newer),
                Err(error) => {
                    tracing::warn!(run = %running.ticket().run_id, %error, "a lease was not renewed");
                }
            }
            running.step(&heartbeats, RunInput::Extended(answer));
            running.watch(&heartbeats);
        });
    }

    /// Works the map off until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut alarm = Alarm::new(self.time.clone());
        loop {
            match self.take_due() {
                Ok(due) => {
                    for running in due {
                        running.fired();
                        running.step(&self, RunInput::Timer);
                        running.watch(&self);
                    }
                }
                Err(next) => {
                    match next {
                        Some(at) => alarm.set(at),
                        None => alarm.clear(),
                    }
                    tokio::select! {
                        biased;
                        () = alarm.rung() => {}
                        () = self.sooner.notified() => {}
                    }
                }
            }
        }
    }

    /// Those whose moment has come, or else the next moment, for which the timer is then set.
    fn take_due(&self) -> Result<Vec<Arc<Running>>, Option<Tick>> {
        let now = self.now();
        let mut due = self.due();
        let mut taken = Vec::new();
        let mut next = None;
        while let Some(entry) = due.runs.first_entry() {
            let at = entry.key().0;
            if at > now {
                next = Some(at);
                break;
            }
            taken.push(entry.remove());
        }
        due.armed = next;
        if taken.is_empty() { Err(next) } else { Ok(taken) }
    }

    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().expect("no panic happens while the map is locked")
    }
}
