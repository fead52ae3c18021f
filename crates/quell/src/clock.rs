//! The only place where real time, sleeping and chance enter: everything else is given them.
//!
//! [`Time`] is a worker's monotonic clock and the host's wall clock; [`RealTime`] reads both, [`SteppedTime`] derives
//! the wall clock from the runtime's clock, for tests under paused time. [`Chance`] is a seedable source of randomness,
//! [`Ids`] makes ids from a clock and a chance. Store time is not here: only a store's own clock makes a timestamp.
//!
//! ```
//! use quell::clock::{Chance, RealTime, Time};
//!
//! /// Given a clock, a test can give it another one.
//! fn is_over(time: &dyn Time, limit: std::time::Duration) -> bool {
//!     time.tick().since(Default::default()) > limit
//! }
//! assert!(!is_over(&RealTime::new(), std::time::Duration::from_secs(60)));
//! assert_eq!(Chance::seeded(7).number(), Chance::seeded(7).number());
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quell_core::batch::WorkerId;
use quell_core::clock::{Clock, Tick, Timestamp};
use quell_core::event::EventId;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// A process's own clocks.
pub trait Time: Send + Sync + 'static {
    /// Monotonic: since this clock was made.
    fn tick(&self) -> Tick;
    /// The host's wall clock. Decides nothing; its divergence from the monotonic clock is a reason for distrust.
    fn wall(&self) -> Timestamp;
}

/// The real clocks.
#[derive(Debug)]
pub struct RealTime {
    start: tokio::time::Instant,
}

impl RealTime {
    /// Starts its monotonic clock at zero.
    #[expect(clippy::disallowed_methods, reason = "this file is where real time comes from")]
    pub fn new() -> Self {
        RealTime { start: tokio::time::Instant::now() }
    }
}

impl Default for RealTime {
    fn default() -> Self {
        RealTime::new()
    }
}

impl Time for RealTime {
    fn tick(&self) -> Tick {
        Tick::default().after(self.start.elapsed())
    }

    #[expect(clippy::disallowed_methods, reason = "this file is where real time comes from")]
    fn wall(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// A wall clock that follows the runtime's clock, so that under paused time all clocks of a test agree. Also serves as
/// the clock of a memory store.
#[derive(Debug)]
pub struct SteppedTime {
    ticks: RealTime,
    start: Timestamp,
}

impl SteppedTime {
    /// Where it starts unless somebody says otherwise: 2023-11-14T22:13:20Z.
    pub const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    /// Starts at a fixed moment of the wall clock, the same in every test.
    pub fn new() -> Self {
        SteppedTime::starting_at(Self::START)
    }

    /// Starts at this moment of the wall clock.
    pub fn starting_at(start: Timestamp) -> Self {
        SteppedTime { ticks: RealTime::new(), start }
    }
}

impl Default for SteppedTime {
    fn default() -> Self {
        SteppedTime::new()
    }
}

impl Time for SteppedTime {
    fn tick(&self) -> Tick {
        self.ticks.tick()
    }

    fn wall(&self) -> Timestamp {
        self.start.after(Duration::from_millis(self.tick().as_millis()))
    }
}

impl Clock for SteppedTime {
    fn now(&self) -> Timestamp {
        self.wall()
    }
}

/// Waits. Every pause of the engine goes through here or through an [`Alarm`].
#[expect(clippy::disallowed_methods, reason = "this file is where sleeping comes from")]
pub async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// How long something takes.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this file is where real time comes from")]
    pub fn start() -> Self {
        Stopwatch(tokio::time::Instant::now())
    }

    /// Since it was started.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// What is left of a time limit; zero when it is over.
    pub fn left(&self, limit: Duration) -> Duration {
        limit.saturating_sub(self.elapsed())
    }
}

/// 256 bits from the operating system that nobody can guess. Not from a [`Chance`], whose draws a seed repeats.
pub fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    rand::make_rng::<rand::rngs::StdRng>().fill_bytes(&mut bytes);
    bytes
}

/// One timer that is set again and again; cheaper than a new sleep for every wish.
pub struct Alarm {
    time: Arc<dyn Time>,
    sleep: Pin<Box<tokio::time::Sleep>>,
    at: Option<Tick>,
}

impl Alarm {
    /// Silent until it is set.
    #[expect(clippy::disallowed_methods, reason = "this file is where sleeping comes from")]
    pub fn new(time: Arc<dyn Time>) -> Self {
        Alarm { time, sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), at: None }
    }

    /// Rings at this tick, and no longer at the one it was set to before.
    #[expect(clippy::disallowed_methods, reason = "this file is where real time comes from")]
    pub fn set(&mut self, at: Tick) {
        if self.at != Some(at) {
            self.at = Some(at);
            let wait = at.since(self.time.tick());
            self.sleep.as_mut().reset(tokio::time::Instant::now() + wait);
        }
    }

    /// Forgets the wish.
    pub fn clear(&mut self) {
        self.at = None;
    }

    /// Returns when the moment has come, once; never while the alarm is not set.
    pub async fn rung(&mut self) {
        std::future::poll_fn(|context| match self.at {
            None => std::task::Poll::Pending,
            Some(_) => self.sleep.as_mut().poll(context),
        })
        .await;
        self.at = None;
    }
}

/// Randomness that a seed repeats.
#[derive(Debug)]
pub struct Chance(Mutex<SmallRng>);

impl Chance {
    /// From the operating system.
    pub fn from_system() -> Self {
        Chance(Mutex::new(rand::make_rng()))
    }

    /// The same seed gives the same draws.
    pub fn seeded(seed: u64) -> Self {
        Chance(Mutex::new(SmallRng::seed_from_u64(seed)))
    }

    /// From [0, 1).
    pub fn unit(&self) -> f64 {
        self.draw(|rng| rng.random())
    }

    /// Any number, all of them equally likely.
    pub fn number(&self) -> u64 {
        self.draw(|rng| rng.next_u64())
    }

    fn draw<T>(&self, from: impl FnOnce(&mut SmallRng) -> T) -> T {
        from(&mut self.0.lock().expect("no panic happens while the generator is locked"))
    }
}

/// Makes ids from the clock and the chance it is given.
#[derive(Clone)]
pub struct Ids {
    time: Arc<dyn Time>,
    chance: Arc<Chance>,
}

impl Ids {
    /// From the caller's clock and chance, so that a test with seeds gets the same ids again.
    pub fn new(time: Arc<dyn Time>, chance: Arc<Chance>) -> Self {
        Ids { time, chance }
    }

    /// `evt_` and a UUID of version 7 in 26 characters: unique by chance, sorted by time, so that indexes stay dense.
    pub fn event_id(&self) -> EventId {
        let millis = u64::try_from(self.time.wall().as_millis()).unwrap_or(0);
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.chance.number().to_le_bytes());
        random[8..].copy_from_slice(&self.chance.number().to_le_bytes()[..2]);
        let uuid = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        EventId::new(format!("evt_{}", base32_of(uuid.as_u128())))
            .expect("30 plain characters are a valid id")
    }

    /// Who this worker is: the name for people, and a start of its own that no other worker shares.
    pub fn worker_id(&self, name: Option<String>) -> WorkerId {
        let start = base32_of(u128::from(self.chance.number()));
        WorkerId {
            name: name.unwrap_or_else(host_name),
            pid: std::process::id(),
            // Eight characters are 40 random bits: enough for the few starts that ever share a name and a pid.
            start: start[start.len() - 8..].to_owned(),
        }
    }
}

/// All 128 bits in 26 characters of Crockford's alphabet, most significant first, so that text order is number order.
fn base32_of(number: u128) -> String {
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let digit = |place: u32| {
        let index = (number >> (place * 5)) & 31;
        char::from(ALPHABET[usize::try_from(index).unwrap_or(0)])
    };
    (0..26).rev().map(digit).collect()
}

/// The name of this machine, as workers and operators are known by it.
#[cfg(unix)]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of this machine, as workers and operators are known by it.
#[cfg(not(unix))]
pub fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(seed: u64) -> Ids {
        Ids::new(Arc::new(SteppedTime::new()), Arc::new(Chance::seeded(seed)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_seed_repeats_every_id() {
        let (a, b, c) = (ids(1), ids(1), ids(2));
        let first = a.event_id();
        assert_eq!(first, b.event_id());
        assert_ne!(first, c.event_id());
        assert_ne!(first, a.event_id(), "the next one is another");
        assert!(first.as_str().starts_with("evt_") && first.as_str().len() == 30, "{first}");
    }

    #[tokio::test(start_paused = true)]
    async fn later_ids_sort_later() {
        let ids = ids(7);
        let first = ids.event_id();
        sleep(Duration::from_millis(1)).await;
        assert!(ids.event_id() > first);
    }

    #[tokio::test(start_paused = true)]
    async fn two_workers_of_one_name_are_two() {
        let ids = ids(3);
        let (a, b) = (ids.worker_id(Some("w".into())), ids.worker_id(Some("w".into())));
        assert_eq!((a.name.as_str(), a.pid, a.start.len()), ("w", b.pid, 8));
        assert_ne!(a.start, b.start);
        assert!(!ids.worker_id(None).name.is_empty(), "the host has a name");
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_at_its_latest_wish_and_once() {
        let time: Arc<dyn Time> = Arc::new(SteppedTime::new());
        let mut alarm = Alarm::new(time.clone());
        alarm.set(Tick::from_millis(50));
        alarm.set(Tick::from_millis(20));
        alarm.rung().await;
        assert_eq!(time.tick(), Tick::from_millis(20));
        let silent = tokio::time::timeout(Duration::from_secs(60), alarm.rung()).await;
        assert!(silent.is_err(), "not set, so it never rings");
    }
}
