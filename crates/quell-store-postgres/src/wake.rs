//! Waking sleepers: in this process by a counter, in other processes by NOTIFY.
//!
//! One connection of its own listens, and tells others: apart from every transaction, since a NOTIFY inside would cost each
//! of them a third, and gathered, so that a thousand appends make few of them. A wake-up carries the moment from which
//! something is due; whoever looks before that anyway sleeps on. It is a hint: a lost one costs at most the poll that
//! every process does as a backstop, more often while it hears nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use quell_core::clock::Timestamp;
use quell_core::store::Wakeups;
use tokio::sync::{Notify, mpsc, watch};
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::clock;
use crate::floors::Floors;

/// Others are told at most this often.
const GATHER: Duration = Duration::from_millis(5);
/// How often everybody looks while nobody can be heard, and otherwise.
const POLL_DEAF: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_secs(10);
/// Between two tries to listen again.
const RECONNECT: Duration = Duration::from_millis(250);
/// A message to oneself that does not come back within this time: a pooler stands between.
const ECHO: Duration = Duration::from_secs(2);

/// Tells listeners of this process and of others.
pub(crate) struct Bell {
    floors: Arc<Floors>,
    rung: watch::Sender<u64>,
    known: Mutex<Sleep>,
    /// What others have to be told, if anything.
    untold: Mutex<Option<Timestamp>>,
    tell: Notify,
}

/// What the sleepers of this process have been told.
#[derive(Default)]
struct Sleep {
    /// When the last of them looks again; unknown while they are awake.
    until: Option<Timestamp>,
    /// The earliest moment that woke nobody, because they would look before it.
    passed_over: Option<Timestamp>,
}

impl Bell {
    pub(crate) fn new(floors: Arc<Floors>) -> Arc<Self> {
        Arc::new(Bell {
            floors,
            rung: watch::Sender::new(0),
            known: Mutex::default(),
            untold: Mutex::default(),
            tell: Notify::new(),
        })
    }

    /// Something may be due at this moment, here and elsewhere.
    pub(crate) fn ring(&self, at: Timestamp) {
        self.floors.rung_here(at);
        self.wake_before(at);
        let mut untold = self.untold.lock().expect("no panic happens while it is locked");
        *untold = Some(untold.map_or(at, |earlier| earlier.min(at)));
        drop(untold);
        self.tell.notify_one();
    }

    /// Another process said so.
    fn hear(&self, at: Timestamp) {
        self.floors.rung(at);
        self.wake_before(at);
    }

    /// Wakes the sleepers of this process, unless they look before this moment anyway.
    fn wake_before(&self, at: Timestamp) {
        let mut known = self.known.lock().expect("no panic happens while it is locked");
        if known.until.is_some_and(|until| until <= at) {
            known.passed_over = Some(known.passed_over.map_or(at, |earlier| earlier.min(at)));
            return;
        }
        *known = Sleep::default();
        drop(known);
        self.ring_here();
    }

    pub(crate) fn ring_here(&self) {
        self.rung.send_modify(|count| *count += 1);
    }

    /// The sleepers of this process look again at this moment at the latest. What rang while they were deciding so
    /// wakes them, if it comes before that.
    pub(crate) fn sleeps(&self, until: Option<Timestamp>) {
        let mut known = self.known.lock().expect("no panic happens while it is locked");
        let missed = known.passed_over.is_some_and(|at| until.is_none_or(|until| at < until));
        *known = Sleep { until: until.filter(|_| !missed), passed_over: None };
        drop(known);
        if missed {
            self.ring_here();
        }
    }

    pub(crate) fn listener(&self) -> Box<dyn Wakeups> {
        Box::new(Listener(self.rung.subscribe()))
    }

    fn take_untold(&self) -> Option<Timestamp> {
        self.untold.lock().expect("no panic happens while it is locked").take()
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

/// The way to the server for the connection that listens.
pub(crate) struct Line {
    pub(crate) config: Config,
    pub(crate) tls: MakeRustlsConnect,
    /// One per schema, so that stores of one database do not wake each other.
    pub(crate) channel: String,
    /// Who tells: what comes back to its sender is known there.
    pub(crate) name: String,
}

/// Listens and tells until the task is ended.
pub(crate) async fn run(bell: Arc<Bell>, line: Line) {
    loop {
        let heard = serve(&bell, &line).await;
        if let Err(why) = heard {
            tracing::info!(why, channel = line.channel, "other processes are noticed by polling only");
        }
        // Whatever was told meanwhile was not heard.
        bell.ring_here();
        clock::wait(RECONNECT).await;
    }
}

/// One connection, until it is lost.
async fn serve(bell: &Bell, line: &Line) -> Result<(), String> {
    let (client, mut connection) = match line.config.connect(line.tls.clone()).await {
        Ok(both) => both,
        Err(error) => {
            bell.ring_here();
            clock::wait(POLL_DEAF).await;
            return Err(crate::error::cause(&error));
        }
    };
    let (told, mut heard) = mpsc::unbounded_channel();
    let messages = async move {
        let mut stream = poll_fn(move |context| connection.poll_message(context));
        while let Some(message) = stream.next().await {
            match message {
                Ok(AsyncMessage::Notification(note)) => drop(told.send(note.payload().to_owned())),
                Ok(_) => {}
                Err(error) => return crate::error::cause(&error),
            }
        }
        "the connection was closed".to_owned()
    };
    let work = async {
        let listen = format!("LISTEN {}", line.channel);
        client.batch_execute(&listen).await.map_err(|e| crate::error::cause(&e))?;
        let mut deaf = !hears_itself(&client, line, &mut heard).await;
        if deaf {
            tracing::info!(
                channel = line.channel,
                "a pooler passes no wake-ups on: other processes are noticed by polling"
            );
        }
        bell.ring_here();
        loop {
            let poll = if deaf { POLL_DEAF } else { POLL };
            tokio::select! {
                note = heard.recv() => match note {
                    Some(note) => {
                        deaf = false;
                        take(bell, line, &note);
                    }
                    None => return Ok(()),
                },
                () = bell.tell.notified() => {
                    if let Some(at) = bell.take_untold() {
                        tell(&client, line, at).await?;
                    }
                    clock::wait(GATHER).await;
                }
                () = clock::wait(poll) => bell.ring_here(),
            }
        }
    };
    tokio::select! {
        why = messages => Err(why),
        done = work => done,
    }
}

/// Says something to itself and waits until it hears it.
async fn hears_itself(client: &Client, line: &Line, heard: &mut mpsc::UnboundedReceiver<String>) -> bool {
    let said = client.batch_execute(&format!("NOTIFY {}, '{}/here'", line.channel, line.name)).await;
    let own = format!("{}/here", line.name);
    let echo = async { while heard.recv().await.is_some_and(|note| note != own) {} };
    said.is_ok() && tokio::time::timeout(ECHO, echo).await.is_ok()
}

/// What is told need not survive a power cut: everybody looks after one. Set for this transaction alone, because a
/// pooler gives the session to others.
async fn tell(client: &Client, line: &Line, at: Timestamp) -> Result<(), String> {
    let note = format!("NOTIFY {}, '{}/{}'", line.channel, line.name, at.as_millis());
    let text = format!("BEGIN; SET LOCAL synchronous_commit = off; {note}; COMMIT");
    client.batch_execute(&text).await.map_err(|e| crate::error::cause(&e))
}

/// What another process said: who it is, and from when on something is due.
fn take(bell: &Bell, line: &Line, note: &str) {
    let Some((name, at)) = note.rsplit_once('/') else { return };
    if name == line.name {
        return;
    }
    if let Ok(at) = at.parse() {
        bell.hear(Timestamp::from_millis(at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn rung(bell: &Bell) -> u64 {
        *bell.rung.borrow()
    }

    #[test]
    fn only_what_comes_before_the_next_look_wakes_a_sleeper() {
        let bell = Bell::new(Arc::default());
        bell.sleeps(Some(at(100)));
        bell.ring(at(100));
        bell.ring(at(150));
        assert_eq!(rung(&bell), 0);
        bell.ring(at(99));
        assert_eq!(rung(&bell), 1);
        bell.sleeps(None);
        bell.ring(at(1_000_000));
        assert_eq!(rung(&bell), 2, "without a next look everything wakes");
    }

    #[test]
    fn what_rang_while_a_claimer_was_looking_wakes_it_when_it_would_sleep_past_it() {
        let bell = Bell::new(Arc::default());
        bell.sleeps(Some(at(100)));
        // Its time has come, it looks, and this is committed behind its back.
        bell.ring(at(140));
        assert_eq!(rung(&bell), 0);
        bell.sleeps(Some(at(200)));
        assert_eq!(rung(&bell), 1);
        bell.sleeps(Some(at(140)));
        assert_eq!(rung(&bell), 1, "once is enough");
    }
}
