//! Connections: a pool of them, each statement sent in the way that the URL chose, and the texts for those that fail.
//!
//! Statements name their tables with the schema `quell`, which is replaced by the store's own: nothing depends on
//! `search_path`. By name, a statement is prepared once per connection and its plan kept for good; without, it is sent
//! whole with the types of its values, in one round trip and with nothing left behind in the session.
//!
//! Requests on one connection travel together when their futures are polled together: the driver sends each at its first
//! poll. That needs statements that are ready ([`Connection::ready`]), because preparing one waits for an answer.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Statement};

use crate::error::cause;
use crate::joined::{Combinations, Joined, Sent};
use crate::options::{Options, StatementMode, Tls};
use crate::tls;

/// A server that does not answer within this time is not reachable.
pub(crate) const CONNECT: Duration = Duration::from_secs(5);
/// A call that gets no connection within this time is refused.
const WAIT: Duration = Duration::from_secs(5);

/// A statement with the types of its values.
pub(crate) struct Sql {
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

/// A value on its way to the server.
pub(crate) type Value = Box<dyn ToSql + Sync + Send>;

/// A statement with its values.
pub(crate) type Request = (&'static Sql, Vec<Value>);

/// A statement that can be sent without asking anything first.
pub(crate) enum Ready {
    Named(Statement),
    Whole(Arc<str>, &'static [Type]),
    /// Whole, and put together of several.
    Joined(Arc<Joined>),
}

/// The plans of hot statements go by indexes whatever the statistics say: they are made when the tables are empty, and
/// kept. Compiling them would take longer than running them. A process that is frozen, or whose machine is lost, in the
/// middle of a transaction holds its lanes for ten seconds and no longer.
pub(crate) const PLANNING: &str = "SET jit = off; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off; \
    SET random_page_cost = 1; SET lock_timeout = 5000; SET idle_in_transaction_session_timeout = 10000";

/// The statements with the store's own schema in place, each put together once: they are known by where they lie.
#[derive(Default)]
struct Texts(RwLock<HashMap<(usize, usize), Arc<str>>>);

impl Texts {
    fn of(&self, sql: &'static str, schema: &str) -> Arc<str> {
        let place = (sql.as_ptr().addr(), sql.len());
        if let Some(text) = self.0.read().expect("no panic happens while it is locked").get(&place) {
            return text.clone();
        }
        let text: Arc<str> = in_schema(sql, schema).into();
        self.0.write().expect("no panic happens while it is locked").insert(place, text.clone());
        text
    }
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) struct Connections {
    pool: Pool,
    /// How many connections have been made.
    made: Arc<AtomicU64>,
    texts: Arc<Texts>,
    combinations: Arc<Combinations>,
    mode: StatementMode,
    schema: String,
    /// Those of the URL.
    ports: Vec<u16>,
    place: String,
    database: String,
    user: String,
    tls: Tls,
}

impl Connections {
    pub(crate) fn new(options: &Options) -> StoreResult<Self> {
        let settings = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(options.config.clone(), tls::connector(options)?, settings);
        let made = Arc::new(AtomicU64::new(0));
        let count = made.clone();
        let mut builder = Pool::builder(manager)
            .max_size(options.pool)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(CONNECT + Duration::from_secs(1)))
            .runtime(Runtime::Tokio1)
            .post_create(Hook::sync_fn(move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }));
        if options.statement_mode == StatementMode::Named {
            builder = builder.post_create(Hook::async_fn(|client, _| {
                Box::pin(async move { client.batch_execute(PLANNING).await.map_err(HookError::Backend) })
            }));
        }
        let pool = builder
            .build()
            .map_err(|e| StoreError::unavailable(format!("no pool of connections can be made: {e}")))?;
        Ok(Connections {
            pool,
            made,
            texts: Arc::default(),
            combinations: Arc::default(),
            mode: options.statement_mode,
            schema: options.schema.clone(),
            ports: options.config.get_ports().to_vec(),
            place: options.place(),
            database: options.database().to_owned(),
            user: options.user().to_owned(),
            tls: options.tls,
        })
    }

    pub(crate) async fn get(&self) -> StoreResult<Connection> {
        match self.pool.get().await {
            Ok(object) => Ok(Connection {
                object: Some(object),
                texts: self.texts.clone(),
                combinations: self.combinations.clone(),
                mode: self.mode,
                schema: self.schema.clone(),
                open: AtomicBool::new(false),
            }),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Where the URL says that the server listens.
    pub(crate) fn ports(&self) -> &[u16] {
        if self.ports.is_empty() { &[5432] } else { &self.ports }
    }

    /// How many connections have been made so far: each time the server dies, all of them are new.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::SeqCst)
    }

    pub(crate) fn mode(&self) -> StatementMode {
        self.mode
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    fn refused(&self, error: PoolError) -> StoreError {
        let (place, seconds) = (&self.place, WAIT.as_secs());
        match error {
            PoolError::Timeout(deadpool_postgres::TimeoutType::Wait) => StoreError::unavailable(format!(
                "all connections to {place} have been busy for {seconds} s; nothing was stored, try again or raise pool= \
                 in the URL"
            )),
            PoolError::Timeout(_) => self.unreachable("no answer in time"),
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                self.not_connected(&error)
            }
            other => StoreError::unavailable(format!("no connection to {place}: {other}")),
        }
    }

    fn unreachable(&self, why: &str) -> StoreError {
        let place = &self.place;
        StoreError::unavailable(format!(
            "cannot reach PostgreSQL at {place} ({why}); is it running there, and are host and port right?"
        ))
    }

    /// Why there is no connection: what happened, where, what to do. Never the password.
    fn not_connected(&self, error: &Error) -> StoreError {
        let (place, user, database) = (&self.place, &self.user, &self.database);
        let invalid = |detail: String| StoreError::new(ErrorKind::Invalid, detail);
        let said = cause(error);
        match error.code() {
            Some(&SqlState::INVALID_PASSWORD | &SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
                invalid(format!(
                    "PostgreSQL at {place} does not let user {user} in ({said}); check user and password in the URL, and \
                 pg_hba.conf on the server"
                ))
            }
            Some(&SqlState::INVALID_CATALOG_NAME) => invalid(format!(
                "there is no database {database} at {place}; make it with CREATE DATABASE {database}, or name another in \
                 the URL"
            )),
            Some(&SqlState::TOO_MANY_CONNECTIONS) => StoreError::unavailable(format!(
                "PostgreSQL at {place} has no connection left ({said}); lower pool= in the URL or raise max_connections"
            )),
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => invalid(format!(
                "user {user} may not connect to {place} ({said}); GRANT CONNECT ON DATABASE {database} TO {user}"
            )),
            Some(_) => {
                StoreError::unavailable(format!("PostgreSQL at {place} takes no connection now: {said}"))
            }
            None if said.contains("does not support TLS") => invalid(format!(
                "PostgreSQL at {place} offers no TLS, and sslmode={} demands it; turn ssl on at the server, or use \
                 sslmode=prefer where the network is trusted",
                if self.tls == Tls::VerifyFull { "verify-full" } else { "require" }
            )),
            None if said.contains("TLS handshake") => invalid(format!(
                "the TLS handshake with PostgreSQL at {place} failed ({said}); with sslmode=verify-full the certificate \
                 must name the host and be signed by a certificate that is trusted (sslrootcert=)"
            )),
            None if said.contains("password missing") => invalid(format!(
                "PostgreSQL at {place} wants a password for user {user} and the URL has none; add it, or set PGPASSWORD"
            )),
            None => self.unreachable(&said),
        }
    }
}

/// One connection, on loan from the pool. It goes back there by being dropped, unless a transaction is open on it: whoever
/// gave up in the middle of one must not leave it to the next.
pub(crate) struct Connection {
    object: Option<Object>,
    texts: Arc<Texts>,
    combinations: Arc<Combinations>,
    mode: StatementMode,
    schema: String,
    open: AtomicBool,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(object) = self.object.take().filter(|_| self.open.load(Ordering::Relaxed)) {
            drop(Object::take(object));
        }
    }
}

impl Connection {
    fn client(&self) -> &ClientWrapper {
        self.object.as_ref().expect("it is there until it is dropped")
    }

    pub(crate) fn text(&self, sql: &'static str) -> Cow<'static, str> {
        in_schema(sql, &self.schema)
    }

    /// The text of somebody else's statement, with the schema in place.
    pub(crate) fn own_text(&self, sql: &str) -> String {
        sql.replace("quell.", &format!("{}.", self.schema))
    }

    /// Sends a statement whole. Says how many rows it has changed.
    pub(crate) async fn change(
        &self,
        text: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<u64, Error> {
        self.client().execute_typed(text, values).await
    }

    /// Sends a query whole.
    pub(crate) async fn ask(
        &self,
        text: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.client().query_typed(text, values).await
    }

    /// Makes a statement ready to be sent.
    pub(crate) async fn ready(&self, sql: &Sql) -> Result<Ready, Error> {
        let text = self.texts.of(sql.text, &self.schema);
        match self.mode {
            StatementMode::Named => {
                self.client().prepare_typed_cached(&text, sql.types).await.map(Ready::Named)
            }
            StatementMode::Unnamed => Ok(Ready::Whole(text, sql.types)),
        }
    }

    /// Sends a statement that is ready, at the first poll.
    pub(crate) async fn send(
        &self,
        ready: &Ready,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        match ready {
            Ready::Named(statement) => self.client().query(statement, values).await,
            Ready::Whole(text, types) => {
                let typed: Vec<_> = values.iter().copied().zip(types.iter().cloned()).collect();
                self.client().query_typed(text, &typed).await
            }
            Ready::Joined(joined) => {
                let typed: Vec<_> = values.iter().copied().zip(joined.types.iter().cloned()).collect();
                self.client().query_typed(&joined.text, &typed).await
            }
        }
    }

    pub(crate) async fn query(&self, sql: &Sql, values: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let ready = self.ready(sql).await?;
        self.send(&ready, values).await
    }

    pub(crate) async fn all_ready(&self, requests: &[Request]) -> Result<Vec<Ready>, Error> {
        let mut ready = Vec::with_capacity(requests.len());
        for (sql, _) in requests {
            ready.push(self.ready(sql).await?);
        }
        Ok(ready)
    }

    /// Sends statements that are ready at the first poll, in their order: what each of them was answered.
    pub(crate) async fn send_all(
        &self,
        requests: &[Request],
        ready: &[Ready],
    ) -> Vec<Result<Vec<Row>, Error>> {
        // Polled one after the other, so sent in this order: a list of more than thirty is not.
        debug_assert!(requests.len() <= 30);
        let sent = requests.iter().zip(ready).map(|((_, values), ready)| async move {
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &**v as _).collect();
            self.send(ready, &values).await
        });
        futures_util::future::join_all(sent).await
    }

    /// Sends writes in their order with a last statement behind them, in one round trip and as few statements as they can be:
    /// what each of these was answered.
    pub(crate) async fn write(
        &self,
        requests: &[Request],
        last: &str,
    ) -> Result<(Vec<Result<Vec<Row>, Error>>, Result<(), Error>), Error> {
        let mut ready = Vec::new();
        for sent in self.combinations.of(requests, &self.schema) {
            ready.push(match sent {
                Sent::One((sql, values)) => (self.ready(sql).await?, values.iter().collect()),
                Sent::Joined(joined, values) => (self.joined_ready(joined).await?, values),
            });
        }
        debug_assert!(ready.len() <= 30, "see `send_all`");
        let sent = ready.iter().map(|(ready, values)| async move {
            let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|v| &***v as _).collect();
            self.send(ready, &values).await
        });
        Ok(futures_util::future::join(futures_util::future::join_all(sent), self.batch(last)).await)
    }

    async fn joined_ready(&self, joined: Arc<Joined>) -> Result<Ready, Error> {
        match self.mode {
            StatementMode::Named => {
                self.client().prepare_typed_cached(&joined.text, &joined.types).await.map(Ready::Named)
            }
            StatementMode::Unnamed => Ok(Ready::Joined(joined)),
        }
    }

    /// Sends reads together, in one round trip: all answers, or the first error.
    pub(crate) async fn read(&self, requests: &[Request]) -> Result<Vec<Vec<Row>>, Error> {
        let ready = self.all_ready(requests).await?;
        self.send_all(requests, &ready).await.into_iter().collect()
    }

    /// Statements without values, one after the other.
    pub(crate) async fn batch(&self, text: &str) -> Result<(), Error> {
        if text.starts_with("BEGIN") {
            self.open.store(true, Ordering::Relaxed);
        }
        self.client().batch_execute(text).await?;
        if text == "ROLLBACK" || text.ends_with("COMMIT") {
            self.open.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client().is_closed()
    }

    /// Closes it instead of giving it back: the server rolls back whatever was open.
    pub(crate) fn discard(self) {
        self.open.store(true, Ordering::Relaxed);
    }
}

/// The statement with the store's own schema in place of `quell`.
pub(crate) fn in_schema<'s>(sql: &'s str, schema: &str) -> Cow<'s, str> {
    if schema == "quell" {
        Cow::Borrowed(sql)
    } else {
        Cow::Owned(sql.replace("quell.", &format!("{schema}.")))
    }
}
