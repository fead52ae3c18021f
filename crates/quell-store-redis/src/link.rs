//! The connection: made when it is needed, made again when it is lost, and opened before anything else is said over it.
//!
//! One connection serves all transactions; requests of several tasks travel behind one another without waiting. Another
//! one serves reads, whose answers may be large. A server that does not know our scripts was restarted or has taken over:
//! it is opened first (`lua/open.lua`), and then told them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quell_core::clock::Timestamp;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::{lease, limits};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, ServerErrorKind, Value};

use crate::clock::instant;
use crate::error::{at_apply, not_done, not_reached, of_application, strange};
use crate::keys::Keys;
use crate::options::Options;
use crate::reply;
use crate::script::{OPEN, Script, Scripts};
use crate::settings::Settings;

/// The version of what is stored. Since 2 there are sources, since 3 shelves, since 4 pockets; older rows are read as they are.
pub(crate) const SCHEMA: u32 = 4;

/// A server that does not take a connection by then is away.
const CONNECT: Duration = Duration::from_secs(2);
/// An answer that has not come by then is given up: the call has been waiting for longer than a call may.
const ANSWER: Duration = limits::STORE_CALL_DEADLINE;
/// After a failed try calls are refused without another one for this long.
const PAUSE: Duration = Duration::from_millis(100);
/// For this long the server's time is reckoned from its last answer by the monotonic clock of this process; two clocks
/// drift apart by less than a microsecond meanwhile. Tests move the server's time and always ask.
const RECKONED: Duration = Duration::from_millis(if cfg!(feature = "test-clock") { 0 } else { 100 });

pub(crate) struct Link {
    client: Client,
    pub(crate) options: Options,
    pub(crate) keys: Keys,
    place: String,
    scripts: Scripts,
    lines: [Line; 2],
    epoch: AtomicU64,
    settings: Mutex<Settings>,
    /// When the server last told its time, and what it was.
    clock: Mutex<Option<(Instant, i64)>>,
    /// The latest time that was told here: it does not go back.
    latest: AtomicI64,
}

/// For which of the two connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Transactions = 0,
    Reads = 1,
}

#[derive(Default)]
struct Line {
    now: Mutex<Now>,
    /// One task connects, the others wait for it.
    gate: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Now {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that one that failed is not taken for its successor.
    generation: u64,
    failed: Option<(Instant, StoreError)>,
}

/// What is known of a call that did not get its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It may be repeated: it reads, or reserves.
    Harmless,
    /// It ends a transaction.
    Ends,
}

/// A script that is not the store's own: whose it is, and what a server that does not know it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Foreign<'a> {
    pub(crate) application: &'a str,
    pub(crate) text: &'a str,
}

impl Link {
    pub(crate) fn new(options: Options) -> StoreResult<Link> {
        let place = options.place();
        // Another crate of the program may have chosen one already; then that is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::open(options.url.as_str()).map_err(|e| not_reached(&e, &place))?;
        Ok(Link {
            client,
            keys: Keys::new(&options.prefix),
            options,
            place,
            scripts: Scripts::new(),
            lines: [Line::default(), Line::default()],
            epoch: AtomicU64::new(0),
            settings: Mutex::default(),
            clock: Mutex::new(None),
            latest: AtomicI64::new(i64::MIN),
        })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings.lock().map(|s| s.clone()).unwrap_or_default()
    }

    /// Changes whenever the server may have forgotten something.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// A call of this script; the arguments follow.
    pub(crate) fn script(&self, script: Script) -> Cmd {
        self.scripts.call(script, &self.keys.meta())
    }

    /// Calls a script that reads or reserves: without an answer it is called once more.
    pub(crate) async fn read(&self, line: For, call: &Cmd) -> StoreResult<Value> {
        self.call(line, call, Call::Harmless, None).await
    }

    /// Calls the script that ends a transaction: without an answer nobody knows.
    pub(crate) async fn end(&self, call: &Cmd) -> StoreResult<Value> {
        self.call(For::Transactions, call, Call::Ends, None).await
    }

    /// Calls a script of an application.
    pub(crate) async fn run(
        &self,
        line: For,
        call: &Cmd,
        kind: Call,
        script: Foreign<'_>,
    ) -> StoreResult<Value> {
        self.call(line, call, kind, Some(script)).await
    }

    /// Plain commands, answered together.
    pub(crate) async fn pipe(&self, pipe: &Pipeline) -> StoreResult<Vec<Value>> {
        let mut tries = 0;
        loop {
            let (mut connection, generation) = self.connection(For::Reads).await?;
            match pipe.query_async::<Vec<Value>>(&mut connection).await {
                Ok(values) => return Ok(values),
                Err(error) => {
                    self.lost(For::Reads, generation, &error);
                    tries += 1;
                    if error.code().is_some() || tries > 1 {
                        return Err(not_done(&error, &self.place));
                    }
                }
            }
        }
    }

    async fn call(
        &self,
        line: For,
        call: &Cmd,
        kind: Call,
        foreign: Option<Foreign<'_>>,
    ) -> StoreResult<Value> {
        let refusal =
            |error: &RedisError| foreign.and_then(|script| of_application(error, script.application));
        let mut tries = 0;
        loop {
            tries += 1;
            let (mut connection, generation) = self.connection(line).await?;
            let error = match call.query_async::<Value>(&mut connection).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) && tries < 4 {
                self.open(&mut connection).await?;
                if let Some(script) = foreign {
                    let mut load = redis::cmd("SCRIPT");
                    load.arg("LOAD").arg(script.text);
                    let failed = |e: RedisError| refusal(&e).unwrap_or_else(|| not_done(&e, &self.place));
                    load.exec_async(&mut connection).await.map_err(failed)?;
                }
                continue;
            }
            let answered = error.code().is_some();
            self.lost(line, generation, &error);
            if let Some(refused) = refusal(&error) {
                return Err(refused);
            }
            match kind {
                Call::Ends => return Err(at_apply(&error, &self.place)),
                Call::Harmless if answered || tries > 1 => return Err(not_done(&error, &self.place)),
                Call::Harmless => {}
            }
        }
    }

    /// A connection that failed is not used again. A server that refuses to write may be a replica now: then it is
    /// another that must be found.
    fn lost(&self, line: For, generation: u64, error: &RedisError) {
        let refused = matches!(
            error.kind(),
            redis::ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::BusyLoading)
        );
        if error.code().is_some() && !refused {
            return;
        }
        if let Ok(mut now) = self.lines[line as usize].now.lock()
            && now.generation == generation
        {
            now.connection = None;
        }
    }

    async fn connection(&self, line: For) -> StoreResult<(MultiplexedConnection, u64)> {
        let of = &self.lines[line as usize];
        let known = || -> StoreResult<Option<(MultiplexedConnection, u64)>> {
            let now = of.now.lock().map_err(|_| strange("a lock that was left by a panic"))?;
            Ok(now.connection.clone().map(|connection| (connection, now.generation)))
        };
        if let Some(found) = known()? {
            return Ok(found);
        }
        let _gate = of.gate.lock().await;
        if let Some(found) = known()? {
            return Ok(found);
        }
        if let Ok(now) = of.now.lock()
            && let Some((_, error)) = now.failed.as_ref().filter(|(at, _)| at.elapsed() < PAUSE)
        {
            return Err(error.clone());
        }
        let made = self.connect().await;
        let mut now = of.now.lock().map_err(|_| strange("a lock that was left by a panic"))?;
        match made {
            Ok(connection) => {
                now.generation += 1;
                now.failed = None;
                now.connection = Some(connection.clone());
                Ok((connection, now.generation))
            }
            Err(error) => {
                now.failed = Some((instant(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect(&self) -> StoreResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER));
        let made = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = made.map_err(|e| not_reached(&e, &self.place))?;
        self.open(&mut connection).await?;
        Ok(connection)
    }

    /// Opens the store on the server at the other end, and tells it the scripts afterwards.
    async fn open(&self, connection: &mut MultiplexedConnection) -> StoreResult<()> {
        let settings = self.read_settings(connection).await?;
        settings.check(&self.options)?;
        let failed = |e: RedisError| not_done(&e, &self.place);
        let (seconds, micros): (i64, i64) =
            redis::cmd("TIME").query_async(connection).await.map_err(failed)?;
        let now = Timestamp::from_millis(seconds * 1_000 + micros / 1_000);
        // A database alone, and one of several, which stays in the range of its numbers: the script knows which it is.
        let alone = lease::calendar_floor(0, now);
        let in_range = lease::calendar_floor(limits::RANGES_FROM, now) - limits::RANGES_FROM;
        let mut call = redis::cmd("EVAL");
        call.arg(OPEN).arg(1).arg(self.keys.meta()).arg(SCHEMA).arg(&settings.run_id);
        call.arg(limits::EPOCH_JUMP).arg(alone).arg(limits::RANGES_FROM).arg(now.as_millis());
        call.arg(limits::RANGE_JUMP).arg(in_range).arg(1_u64 << limits::RANGE_BITS);
        let answer: Value = call.query_async(connection).await.map_err(failed)?;
        let mut answer = reply::list(answer)?.into_iter().map(reply::text);
        let mut word = || answer.next().flatten();
        match word().as_deref() {
            Some("open") => {
                let epoch = word().and_then(|text| text.parse().ok());
                self.epoch
                    .store(epoch.ok_or_else(|| strange("an epoch that is no number"))?, Ordering::SeqCst);
                if word().as_deref() == Some("raised") {
                    // Older programs that are still at work would forget what they do not find in their places: their
                    // scripts go, so that they open the store before their next call, and are refused.
                    let mut flush = redis::cmd("SCRIPT");
                    flush.arg("FLUSH").exec_async(connection).await.map_err(failed)?;
                }
            }
            Some("newer") => {
                let (theirs, place) = (word().unwrap_or_default(), &self.place);
                let text = format!(
                    "the data at {place} have version {theirs}, this program knows {SCHEMA}: use the newer Quell that wrote them"
                );
                return Err(StoreError::new(ErrorKind::Corrupt, text));
            }
            _ => {
                let text = format!("{} has no numbers left below 2^53", self.place);
                return Err(StoreError::new(ErrorKind::Corrupt, text));
            }
        }
        let mut load = redis::pipe();
        for source in Scripts::sources() {
            load.cmd("SCRIPT").arg("LOAD").arg(source);
        }
        load.query_async::<Vec<Value>>(connection).await.map_err(failed)?;
        if let Ok(mut known) = self.settings.lock() {
            *known = settings;
        }
        Ok(())
    }

    async fn read_settings(&self, connection: &mut MultiplexedConnection) -> StoreResult<Settings> {
        let info: String =
            redis::cmd("INFO").query_async(connection).await.map_err(|e| not_done(&e, &self.place))?;
        let mut settings = Settings::of_info(&info);
        for name in ["appendonly", "appendfsync", "maxmemory-policy"] {
            let told: Result<Vec<String>, RedisError> =
                redis::cmd("CONFIG").arg("GET").arg(name).query_async(connection).await;
            match told {
                Ok(pair) => {
                    if let [_, value] = &pair[..] {
                        settings.configured(name, value.clone());
                    }
                }
                // Managed servers keep their configuration to themselves.
                Err(error) if error.code().is_some() => break,
                Err(error) => return Err(not_done(&error, &self.place)),
            }
        }
        Ok(settings)
    }

    /// What the server says of itself now.
    pub(crate) async fn look_again(&self) -> StoreResult<Settings> {
        let (mut connection, _) = self.connection(For::Reads).await?;
        let settings = self.read_settings(&mut connection).await?;
        if let Ok(mut known) = self.settings.lock() {
            *known = settings.clone();
        }
        Ok(settings)
    }

    /// The epoch has changed under this process: the store is opened anew, which tells the new one.
    pub(crate) async fn open_again(&self) -> StoreResult<()> {
        let (mut connection, _) = self.connection(For::Transactions).await?;
        self.open(&mut connection).await
    }

    /// The server has told its time.
    pub(crate) fn told(&self, now: Timestamp) {
        if let Ok(mut clock) = self.clock.lock() {
            *clock = Some((instant(), now.as_millis()));
        }
    }

    /// The server's time as far as it can be told without asking.
    pub(crate) fn reckoned(&self) -> Timestamp {
        let told = self.clock.lock().ok().and_then(|clock| *clock);
        let millis = told.map(|(at, then)| then + i64::try_from(at.elapsed().as_millis()).unwrap_or(0));
        Timestamp::from_millis(millis.unwrap_or(i64::MIN))
    }

    /// The server's time; it lies behind by as much as an answer takes, never ahead.
    pub(crate) async fn now(&self) -> StoreResult<Timestamp> {
        let told = self.clock.lock().ok().and_then(|clock| *clock);
        let millis = match told.map(|(at, then)| (at.elapsed(), then)) {
            Some((since, then)) if since < RECKONED => then + i64::try_from(since.as_millis()).unwrap_or(0),
            _ => {
                let answer = self.read(For::Transactions, &self.script(Script::Time)).await?;
                let now = reply::time(answer)?;
                self.told(now);
                now.as_millis()
            }
        };
        Ok(Timestamp::from_millis(self.latest.fetch_max(millis, Ordering::SeqCst).max(millis)))
    }
}
