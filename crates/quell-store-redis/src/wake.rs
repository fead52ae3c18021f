//! Waking sleepers: in this process by a counter, in other processes by a message.
//!
//! After a transaction that makes something due earlier than sleepers know, the moment goes to all processes of the
//! partition, apart from the transaction and at most every few milliseconds: what is rung meanwhile travels as one
//! message with the earliest moment. A receiver whose claimers look again before that moment lets them sleep. A message
//! is a hint; while no message can be heard, this process looks every second.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use quell_core::clock::Timestamp;
use quell_core::store::Wakeups;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::clock::{own_name, wait};
use crate::link::{For, Link};

/// Messages are at least this far apart.
const APART: Duration = Duration::from_millis(5);
/// How often this process looks by itself while it hears nothing, and tries to hear again.
const BACKSTOP: Duration = Duration::from_secs(1);
/// After so long without a message the connection is tried.
const SILENCE: Duration = Duration::from_secs(10);

pub(crate) struct Bell {
    rung: watch::Sender<u64>,
    hears: Mutex<Hears>,
    /// The earliest moment that other processes have not been told.
    untold: Mutex<Option<Timestamp>>,
    tell: Notify,
    /// This process among others: it does not wake itself twice.
    own: String,
}

/// What the claimers of this process have to hear of.
#[derive(Debug)]
struct Hears {
    /// When the one who sleeps longest looks again; for ever when nothing is known.
    until: Option<Timestamp>,
    /// The earliest moment that was not passed on since that was told: a claimer may have gone to sleep meanwhile
    /// without having seen it.
    missed: Option<Timestamp>,
}

impl Hears {
    /// Whether somebody has to be woken for this moment.
    fn wakes(&mut self, at: Timestamp) -> bool {
        let wakes = self.until.is_none_or(|until| at < until);
        if !wakes {
            self.missed = Some(self.missed.map_or(at, |known| known.min(at)));
        }
        wakes
    }

    /// Whether somebody has to be woken at once, because he would sleep past something.
    fn sleeps(&mut self, until: Option<Timestamp>) -> bool {
        self.until = until;
        let missed = self.missed.take();
        missed.is_some_and(|at| until.is_none_or(|until| at < until))
    }
}

impl Bell {
    pub(crate) fn new() -> Arc<Bell> {
        Arc::new(Bell {
            rung: watch::Sender::new(0),
            hears: Mutex::new(Hears { until: None, missed: None }),
            untold: Mutex::new(None),
            tell: Notify::new(),
            own: own_name(),
        })
    }

    /// Something may be due at this moment, here and elsewhere.
    pub(crate) fn ring(&self, at: Timestamp) {
        self.ring_here();
        if let Ok(mut untold) = self.untold.lock() {
            *untold = Some(untold.map_or(at, |known| known.min(at)));
        }
        self.tell.notify_one();
    }

    fn hear(&self, at: Timestamp) {
        if self.hears.lock().is_ok_and(|mut hears| hears.wakes(at)) {
            self.ring_here();
        }
    }

    fn ring_here(&self) {
        self.rung.send_modify(|count| *count += 1);
    }

    pub(crate) fn sleeps(&self, until: Option<Timestamp>) {
        if self.hears.lock().is_ok_and(|mut hears| hears.sleeps(until)) {
            self.ring_here();
        }
    }

    pub(crate) fn listener(&self) -> Box<dyn Wakeups> {
        Box::new(Listener(self.rung.subscribe()))
    }

    /// The tasks that tell and hear; they end with the store.
    pub(crate) fn tasks(self: &Arc<Self>, link: &Arc<Link>) -> Vec<JoinHandle<()>> {
        vec![tokio::spawn(tell(self.clone(), link.clone())), tokio::spawn(hear(self.clone(), link.clone()))]
    }
}

async fn tell(bell: Arc<Bell>, link: Arc<Link>) {
    loop {
        bell.tell.notified().await;
        let Some(at) = bell.untold.lock().ok().and_then(|mut untold| untold.take()) else { continue };
        // What is due already wakes everybody, whenever they meant to look.
        let at = if at <= link.reckoned() { Timestamp::default() } else { at };
        let mut message = redis::cmd("PUBLISH");
        message.arg(link.keys.wake()).arg(format!("{} {}", at.as_millis(), bell.own));
        if let Err(error) = link.read(For::Transactions, &message).await {
            // Those who hear nothing look by themselves.
            tracing::debug!(%error, "other processes were not woken");
        }
        wait(APART).await;
    }
}

async fn hear(bell: Arc<Bell>, link: Arc<Link>) {
    loop {
        if let Err(error) = listen(&bell, &link).await {
            tracing::debug!(%error, "wake-ups of other processes cannot be heard for now");
        }
        // Whatever was said meanwhile is lost: the claimers look for themselves.
        bell.ring_here();
        wait(BACKSTOP).await;
        bell.ring_here();
    }
}

/// Hears until the connection is lost.
async fn listen(bell: &Bell, link: &Link) -> redis::RedisResult<()> {
    let (mut asks, mut messages) = link.client().get_async_pubsub().await?.split();
    asks.subscribe(link.keys.wake()).await?;
    // Whatever was said before is lost.
    bell.ring_here();
    loop {
        let message = match tokio::time::timeout(SILENCE, messages.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(_) => {
                // A connection that was cut without a word is as silent as one over which nothing is said.
                let asked = tokio::time::timeout(SILENCE, asks.ping::<redis::Value>()).await;
                asked.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))?;
                continue;
            }
        };
        let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
        let Some((at, from)) = text.split_once(' ') else { continue };
        if let Ok(at) = at.parse()
            && from != bell.own
        {
            bell.hear(Timestamp::from_millis(at));
        }
    }
}

struct Listener(watch::Receiver<u64>);

#[async_trait]
impl Wakeups for Listener {
    async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone: nothing will ever be due.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn only_what_is_due_before_the_next_look_wakes() {
        let mut hears = Hears { until: None, missed: None };
        assert!(hears.wakes(at(5)), "one who sleeps for ever hears everything");
        assert!(!hears.sleeps(Some(at(10))));
        assert!(hears.wakes(at(9)));
        assert!(!hears.wakes(at(10)), "he looks then anyway");
    }

    #[test]
    fn what_came_while_a_claimer_was_looking_wakes_it_when_it_lies_down() {
        let mut hears = Hears { until: Some(at(10)), missed: None };
        assert!(!hears.wakes(at(20)));
        assert!(hears.sleeps(Some(at(30))), "it was told of 30 before it could know of 20");
        assert!(!hears.sleeps(Some(at(30))), "once");
    }
}
