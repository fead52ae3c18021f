//! One claimed run on its way through a handler to its settlement.
//!
//! A [`Running`] joins a pure driver (`quell-core/src/step`) with those who perform its effects: the run's own task
//! ([`drive`]: handler and settlement) and the heartbeat task (renewals and timers). Both give inputs; orders for the
//! run's task wait in a short list. Everything a handler can do wrong ends here: a panic, an endless wait, a refusal to
//! stop.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use futures_util::FutureExt;
use quell_core::batch::Batch;
use quell_core::clock::Tick;
use quell_core::error::StoreResult;
use quell_core::step::{HandlerEnd, RunDriver, RunEffect, RunEnd, RunInput, RunTicket};
use quell_core::store::{SettleRequest, Settled, Store};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::handler::{Answer, Backing, Handler, Known, Run};
use crate::heartbeat::Heartbeats;
use crate::spans::Recorded;
use crate::trace::Trace;

/// A run and its driver, shared by the run's task and the heartbeat task.
pub(crate) struct Running {
    number: u64,
    ticket: RunTicket,
    inner: Mutex<Inner>,
    told: Notify,
    known: Arc<Known>,
}

struct Inner {
    driver: RunDriver,
    effects: Vec<RunEffect>,
    orders: VecDeque<Order>,
    /// When the driver wants to be woken.
    wake_at: Option<Tick>,
    /// Under which moment it stands in the map of heartbeats.
    entered: Option<Tick>,
    ended: bool,
}

/// What the run's own task has to do.
enum Order {
    Dispatch,
    Stopping,
    /// Its work is not wanted any more.
    Interrupt,
    StopHandler(&'static str),
    Settle(SettleRequest),
    End(RunEnd),
}

impl Running {
    /// `number` is unique among the runs of a worker.
    pub(crate) fn new(number: u64, driver: RunDriver) -> Arc<Self> {
        let inner = Inner {
            driver,
            effects: Vec::new(),
            orders: VecDeque::new(),
            wake_at: None,
            entered: None,
            ended: false,
        };
        Arc::new(Running {
            number,
            ticket: inner.driver.ticket(),
            inner: Mutex::new(inner),
            told: Notify::new(),
            known: Arc::default(),
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn ticket(&self) -> RunTicket {
        self.ticket
    }

    pub(crate) fn known(&self) -> &Arc<Known> {
        &self.known
    }

    /// Gives the driver an input and passes on what it wants done.
    pub(crate) fn step(self: &Arc<Self>, heartbeats: &Arc<Heartbeats>, input: RunInput) {
        let mut inner = self.inner();
        let Inner { driver, effects, orders, wake_at, ended, .. } = &mut *inner;
        driver.step(heartbeats.now(), input, effects);
        let before = orders.len();
        let mut renewal = None;
        for effect in effects.drain(..) {
            match effect {
                RunEffect::WakeAt(at) => *wake_at = Some(at),
                RunEffect::Extend(request) => renewal = Some(request),
                RunEffect::Dispatch => orders.push_back(Order::Dispatch),
                RunEffect::Stopping if driver.is_unwanted() => orders.push_back(Order::Interrupt),
                RunEffect::Stopping => orders.push_back(Order::Stopping),
                RunEffect::StopHandler(why) => orders.push_back(Order::StopHandler(why)),
                RunEffect::Settle(request) => orders.push_back(Order::Settle(request)),
                RunEffect::Ended(end) => {
                    *ended = true;
                    orders.push_back(Order::End(end));
                }
            }
        }
        let told = orders.len() > before;
        drop(inner);
        if told {
            self.told.notify_one();
        }
        if let Some(request) = renewal {
            heartbeats.extend(self, request);
        }
    }

    /// Has itself woken when the driver wants it.
    pub(crate) fn watch(self: &Arc<Self>, heartbeats: &Heartbeats) {
        let mut inner = self.inner();
        if inner.ended {
            if let Some(at) = inner.entered.take() {
                heartbeats.leave(self, at);
            }
            return;
        }
        // A moment that is too early only costs a look; one that is too late would miss a deadline.
        if let Some(at) = inner.wake_at.filter(|at| inner.entered.is_none_or(|entered| *at < entered)) {
            heartbeats.enter(self, inner.entered, at);
            inner.entered = Some(at);
        }
    }

    /// The run's task is gone: nothing is done for it any more.
    pub(crate) fn forget(&self, heartbeats: &Heartbeats) {
        let mut inner = self.inner();
        inner.ended = true;
        if let Some(at) = inner.entered.take() {
            heartbeats.leave(self, at);
        }
    }

    /// The map of heartbeats has let go of this run.
    pub(crate) fn fired(&self) {
        self.inner().entered = None;
    }

    async fn next_order(self: &Arc<Self>, heartbeats: &Heartbeats) -> Order {
        loop {
            if let Some(order) = self.inner().orders.pop_front() {
                return order;
            }
            self.watch(heartbeats);
            self.told.notified().await;
        }
    }

    fn has_orders(&self) -> bool {
        !self.inner().orders.is_empty()
    }

    fn put_back(&self, order: Order) {
        self.inner().orders.push_front(order);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic happens while a run is locked")
    }
}

/// What a run's task needs besides the run itself.
pub(crate) struct Surroundings {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) heartbeats: Arc<Heartbeats>,
    /// Cancelled when the worker stops.
    pub(crate) stopping: CancellationToken,
}

/// Does what the driver orders, until the attempt is over. The driver has been started and is watched already: from
/// here on the handler may block this very task, and its lease is kept all the same.
pub(crate) async fn drive(
    around: Arc<Surroundings>,
    running: Arc<Running>,
    handler: Arc<dyn Handler>,
    batch: Batch,
    mut span: Recorded,
) -> RunEnd {
    let (heartbeats, queue) = (&around.heartbeats, batch.lane.queue.clone());
    let mut batch = Some(batch);
    loop {
        match running.next_order(heartbeats).await {
            Order::Dispatch => {
                let batch = batch.take().expect("a run is dispatched once");
                let end = handle(&around, &running, &*handler, batch, span.trace()).await;
                span.handled(&end);
                running.step(heartbeats, RunInput::HandlerEnded(end));
            }
            Order::Settle(mut request) => {
                let settling = span.settle(&queue, &mut request);
                if let Some(answer) = settle(&around, &running, request).await {
                    settling.told(answer.as_ref().err().map(|error| error.kind.as_str()));
                    running.step(heartbeats, RunInput::Settled(answer));
                }
            }
            Order::End(end) => {
                running.watch(heartbeats);
                span.ended(&end);
                return end;
            }
            // The handler ended by itself in the same moment.
            Order::Stopping | Order::Interrupt | Order::StopHandler(_) => {}
        }
    }
}

/// Runs the handler until it answers, panics or has to stop. When this returns its future is gone.
async fn handle(
    around: &Surroundings,
    running: &Arc<Running>,
    handler: &dyn Handler,
    batch: Batch,
    trace: Option<Trace>,
) -> HandlerEnd {
    let (told, heartbeats) = (running.clone(), around.heartbeats.clone());
    let driver = Box::new(move |input| {
        told.step(&heartbeats, input);
        told.watch(&heartbeats);
    });
    let backing = Backing { engine: around.engine.clone(), driver };
    // A token of its own: stopping one run stops no other.
    let run = Run::backed(batch, around.stopping.child_token(), running.known().clone(), trace, backing);
    // Nothing of ours is shared with the handler's future, so nothing of ours can be left half-changed by its panic.
    let work = AssertUnwindSafe(async { handler.answer(&run).await }).catch_unwind();
    let mut work = pin!(work);
    // A task that waited long for its turn may have been told to stop already; then the handler does not even begin.
    if !running.has_orders()
        && let Poll::Ready(end) = futures_util::poll!(work.as_mut())
    {
        return handler_end(end);
    }
    loop {
        tokio::select! {
            biased;
            order = running.next_order(&around.heartbeats) => match order {
                Order::Stopping => run.stopping().cancel(),
                Order::Interrupt => {
                    run.interrupted().cancel();
                    run.stopping().cancel();
                }
                Order::StopHandler(why) => {
                    // What newer events or an operator asked for is no trouble.
                    if run.is_interrupted() {
                        tracing::debug!(run = %run.run_id(), key = %run.key(), why, "a handler is stopped");
                    } else {
                        tracing::warn!(run = %run.run_id(), key = %run.key(), why, "a handler is stopped");
                    }
                    return HandlerEnd::Stopped;
                }
                other => {
                    running.put_back(other);
                    return HandlerEnd::Stopped;
                }
            },
            end = work.as_mut() => return handler_end(end),
        }
    }
}

fn handler_end(end: Result<Answer, Box<dyn Any + Send>>) -> HandlerEnd {
    match end {
        Ok(Answer::Outcome(outcome)) => HandlerEnd::Outcome(outcome),
        Ok(Answer::Error(text)) => HandlerEnd::Error(text),
        Err(panic) => HandlerEnd::Panicked(panic_text(&*panic)),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

/// Tells the store the outcome. Nothing when the driver gave up waiting for the answer.
async fn settle(
    around: &Surroundings,
    running: &Arc<Running>,
    request: SettleRequest,
) -> Option<StoreResult<Settled>> {
    let mut call = around.store.settle(request);
    if let Poll::Ready(answer) = futures_util::poll!(call.as_mut()) {
        return Some(answer);
    }
    tokio::select! {
        biased;
        answer = call => Some(answer),
        order = running.next_order(&around.heartbeats) => {
            running.put_back(order);
            None
        }
    }
}
