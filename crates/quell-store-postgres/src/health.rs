//! What the server says of itself: who it is, what an acknowledgement is worth there, how large the tables are.

use std::sync::atomic::{AtomicU64, Ordering};

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::{Concern, Health};
use quell_core::store::{Description, Durability};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Connection, Connections, Sql};
use crate::error::not_done;
use crate::options::{Options, StatementMode};
use crate::rows::get;
use crate::tx::store_time;
use crate::{Shared, clock, migrate};

/// The oldest server whose statements these are.
const OLDEST: i32 = 120_000;
/// Clocks that differ by more than this confuse people who compare logs.
const SKEW: i64 = 60_000;

static SERVER: Sql = Sql {
    text: "SELECT pg_is_in_recovery(), current_setting('server_version'), current_setting('server_version_num')::int,
                  current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
                  current_setting('server_encoding'), inet_server_port()",
    types: &[],
};
pub(crate) static MOMENT: Sql = Sql {
    text: "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, test_offset FROM quell.meta",
    types: &[],
};
static TABLES: Sql = Sql {
    text:
        "SELECT relname::text, pg_total_relation_size(relid), n_live_tup, n_dead_tup FROM pg_stat_user_tables
           WHERE schemaname = $1 ORDER BY relname",
    types: &[Type::TEXT],
};
static SESSIONS: Sql = Sql {
    text: "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint FROM pg_stat_activity
           WHERE state = 'idle in transaction' AND datname = current_database()",
    types: &[],
};
#[cfg(feature = "test-clock")]
pub(crate) static ADVANCE: Sql =
    Sql { text: "UPDATE quell.meta SET test_offset = test_offset + $1", types: &[Type::INT8] };

/// New for every open store.
pub(crate) fn own_name() -> String {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let (pid, nth) = (std::process::id(), OPENED.fetch_add(1, Ordering::SeqCst));
    format!("{pid}-{nth}-{:x}", clock::wall_millis())
}

/// A pooler or proxy hands on to a server that listens elsewhere than the URL says. One on the same port is not seen.
fn pooler(asked: &[u16], port: Option<i32>) -> Option<String> {
    let own = u16::try_from(port?).ok()?;
    (!asked.contains(&own)).then(|| format!("seen: the server itself listens on port {own}"))
}

fn unfit_for_a_pooler(mode: StatementMode) -> Option<Concern> {
    (mode == StatementMode::Named).then(|| {
        Concern::new(
            "a pooler stands between Quell and PostgreSQL, and statements are prepared by name",
            "if it pools by transaction, add statement_mode=unnamed to the store's URL; one that pools by session is fine",
        )
    })
}

/// Asks the server who it is, and refuses one that cannot keep the promises.
pub(crate) async fn describe(connections: &Connections, options: &Options) -> StoreResult<Description> {
    let connection = connections.get().await?;
    let rows = connection.query(&SERVER, &[]).await.map_err(|e| not_done(&e))?;
    let row = rows.first().ok_or_else(|| StoreError::unavailable("the server tells nothing of itself"))?;
    let place = options.place();
    let refused = |detail: String| Err(StoreError::new(ErrorKind::Invalid, detail));
    if get(row, 0)? {
        return refused(format!(
            "{place} is a read-only replica; point the URL at the primary (target_session_attrs=read-write picks it from \
             several hosts)"
        ));
    }
    let (version, number): (String, i32) = (get(row, 1)?, get(row, 2)?);
    if number < OLDEST {
        return refused(format!("{place} runs PostgreSQL {version}; Quell needs 12 or newer"));
    }
    let encoding: String = get(row, 6)?;
    if encoding != "UTF8" {
        return refused(format!(
            "{place} has the encoding {encoding}; Quell needs a database made with UTF8"
        ));
    }
    let durability = durability(row)?;
    Ok(Description { kind: "postgres", place, version, schema: migrate::VERSION, durability })
}

/// What may be lost by a power cut, in words, and the setting that prevents it.
fn weaknesses(row: &Row) -> StoreResult<Vec<(&'static str, &'static str)>> {
    let off = |column| -> StoreResult<bool> { Ok(get::<&str>(row, column)? == "off") };
    let mut found = Vec::new();
    if off(3)? {
        found.push(("fsync is off: a power cut may lose everything", "fsync"));
    }
    if off(4)? {
        found.push(("full_page_writes is off: a power cut may damage the database", "full_page_writes"));
    }
    if off(5)? {
        let text = "synchronous_commit is off: a crash may lose the last acknowledged events";
        found.push((text, "synchronous_commit"));
    }
    Ok(found)
}

fn durability(row: &Row) -> StoreResult<Durability> {
    let weak = weaknesses(row)?;
    let texts: Vec<&str> = weak.iter().map(|(text, _)| *text).collect();
    Ok(if weak.is_empty() { Durability::Durable } else { Durability::BestEffort(texts.join("; ")) })
}

pub(crate) async fn health(shared: &Shared, connection: &Connection) -> StoreResult<Health> {
    let ask = async |sql: &'static Sql| connection.query(sql, &[]).await.map_err(|e| not_done(&e));
    let moment = ask(&MOMENT).await?;
    let now = moment.first().map_or(Ok(Default::default()), store_time)?;
    let mut facts: Vec<(String, String)> = Vec::new();
    let mut warnings = Vec::new();
    let server = ask(&SERVER).await?;
    if let Some(row) = server.first() {
        for (column, name) in
            [(1, "server_version"), (3, "fsync"), (4, "full_page_writes"), (5, "synchronous_commit")]
        {
            facts.push((name.to_owned(), get(row, column)?));
        }
        warnings.extend(weaknesses(row)?.into_iter().map(|(text, setting)| {
            let set = format!("ALTER SYSTEM SET {setting} = on; SELECT pg_reload_conf();");
            Concern::new(text, format!("{set} and look whether the role or the database sets it, too"))
        }));
        let pooler = pooler(shared.connections.ports(), get(row, 7)?);
        warnings.extend(pooler.as_ref().and_then(|_| unfit_for_a_pooler(shared.connections.mode())));
        facts.push(("pooler".into(), pooler.unwrap_or_else(|| "none seen".into())));
    }
    facts.push(("statement_mode".into(), shared.connections.mode().as_str().into()));
    facts.push(("schema".into(), shared.connections.schema().to_owned()));
    facts.push(("schema_version".into(), migrate::VERSION.to_string()));
    let tables =
        connection.query(&TABLES, &[&shared.connections.schema()]).await.map_err(|e| not_done(&e))?;
    for row in tables {
        let (name, bytes, live, dead): (String, i64, i64, i64) =
            (get(&row, 0)?, get(&row, 1)?, get(&row, 2)?, get(&row, 3)?);
        facts.push((format!("{name}_bytes"), bytes.to_string()));
        facts.push((format!("{name}_dead_rows"), dead.to_string()));
        if dead > 100_000 && dead > live.saturating_mul(2) {
            let text = format!(
                "table {name} has {dead} dead rows and {live} live ones: autovacuum does not keep up, or a transaction has \
                 been open for long"
            );
            let schema = shared.connections.schema();
            let fix = format!(
                "end the oldest transaction that pg_stat_activity shows (xact_start), then VACUUM {schema}.{name};"
            );
            warnings.push(Concern::new(text, fix));
        }
    }
    let oldest: i64 = ask(&SESSIONS).await?.first().map_or(Ok(0), |row| get(row, 0))?;
    if oldest > 30 {
        warnings.push(Concern::new(
            format!(
                "a session has been idle in a transaction for {oldest} s: it keeps dead rows alive and makes claims slow"
            ),
            "find it in pg_stat_activity (state = 'idle in transaction') and end it with pg_terminate_backend(pid); set \
             idle_in_transaction_session_timeout for its role",
        ));
    }
    let divergence = now.as_millis() - clock::wall_millis();
    if divergence.abs() > SKEW {
        warnings.push(Concern::new(
            format!("the server's clock and this host's differ by {divergence} ms; the server's decides"),
            "set both clocks by NTP; nothing is lost by it, but logs do not match",
        ));
    }
    Ok(Health {
        description: shared.description.clone(),
        now,
        wall_divergence_ms: divergence,
        facts,
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_elsewhere_stands_behind_a_pooler() {
        assert_eq!(pooler(&[5432], Some(5432)), None);
        assert_eq!(
            pooler(&[6432, 6433], Some(5432)).as_deref(),
            Some("seen: the server itself listens on port 5432")
        );
        assert_eq!(pooler(&[5432], None), None, "a socket has no port");
        assert!(unfit_for_a_pooler(StatementMode::Unnamed).is_none());
        assert!(unfit_for_a_pooler(StatementMode::Named).unwrap().fix.contains("statement_mode=unnamed"));
    }
}
