//! What cannot be opened is refused with what happened, where, and what to do, and never with the password.

use quell_core::error::{ErrorKind, StoreError};
use quell_core::inspect::Inspect;
use quell_core::store::{ClaimRequest, Durability, Store};
use quell_store_postgres::{Options, PostgresStore};
use quell_store_tests::builders::{
    SUCCEEDED, append, append_one, claim, claim_all, claim_request, event, refused, settle, try_append,
    worker,
};
use quell_store_tests::reads::{health, verify};
use quell_test_servers::{pgbouncer_url, postgres_url};

use crate::world::{WITHOUT_FIRSTS, fresh_schema, run_sql, with};

async fn refusal(url: &str) -> StoreError {
    let options = Options::parse(url).expect("the URL can be read");
    match PostgresStore::open(options).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

#[track_caller]
fn assert_says(error: &StoreError, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind, kind, "{error}");
    for word in words {
        assert!(error.detail.contains(word), "{word:?} is missing: {error}");
    }
    assert!(!error.detail.contains("quelltest"), "the password is told: {error}");
}

/// The shared server, as another user.
fn as_user(user: &str, password: &str) -> String {
    let url = postgres_url();
    let (_, rest) = url.split_once('@').expect("the URL has a user");
    format!("postgres://{user}:{password}@{rest}")
}

#[tokio::test]
async fn a_wrong_password_is_told_with_user_and_place() {
    let error = refusal(&as_user("quell", "not-the-one")).await;
    assert_says(
        &error,
        ErrorKind::Invalid,
        &["user quell", "password authentication failed", "pg_hba.conf", "/postgres"],
    );
    assert!(!error.detail.contains("not-the-one"), "{error}");
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_is_told_with_its_address() {
    let error = refusal("postgres://quell:quelltest@127.0.0.1:1/postgres").await;
    assert_says(&error, ErrorKind::Unavailable, &["cannot reach", "127.0.0.1:1/postgres", "is it running"]);
    let error = refusal("postgres://quell:quelltest@no-such-host.invalid/postgres").await;
    assert_says(&error, ErrorKind::Unavailable, &["cannot reach", "no-such-host.invalid"]);
}

#[tokio::test]
async fn an_unknown_database_is_told_with_how_to_make_it() {
    let url = postgres_url();
    let url =
        url.rsplit_once('/').map(|(server, _)| format!("{server}/nowhere")).expect("the URL has a database");
    assert_says(
        &refusal(&url).await,
        ErrorKind::Invalid,
        &["no database nowhere", "CREATE DATABASE nowhere"],
    );
}

#[tokio::test]
async fn a_user_who_may_not_make_the_schema_is_told_what_to_ask_for() {
    let user = fresh_schema();
    run_sql(&postgres_url(), &format!("CREATE ROLE {user} LOGIN PASSWORD 'pw'")).await;
    let error = refusal(&with(&as_user(&user, "pw"), "jobs_of_nobody", "")).await;
    let words = ["CREATE SCHEMA jobs_of_nobody AUTHORIZATION", "GRANT CREATE ON DATABASE postgres TO", &user];
    assert_says(&error, ErrorKind::Invalid, &words);
    run_sql(&postgres_url(), &format!("DROP ROLE {user}")).await;
}

#[tokio::test]
async fn tls_that_the_server_does_not_offer_is_refused_when_it_is_demanded() {
    for (mode, root) in [("require", ""), ("verify-full", "")] {
        let url = with(&postgres_url(), "quell", &format!("&sslmode={mode}{root}"));
        let error = refusal(&url).await;
        if error.detail.contains("none were found") {
            continue; // A machine without any trusted certificate says so first.
        }
        assert_says(
            &error,
            ErrorKind::Invalid,
            &["offers no TLS", &format!("sslmode={mode}"), "sslmode=prefer"],
        );
    }
    let url = with(&postgres_url(), "quell", "&sslmode=verify-full&sslrootcert=/no/such/file.pem");
    assert_says(&refusal(&url).await, ErrorKind::Invalid, &["/no/such/file.pem"]);
}

/// A role whose sessions are told that the server is a replica.
#[tokio::test]
async fn a_read_only_replica_is_refused() {
    let name = fresh_schema();
    let sql = format!(
        "CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'pw';
         CREATE SCHEMA {name};
         CREATE FUNCTION {name}.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true';
         ALTER ROLE {name} SET search_path = {name}, pg_catalog"
    );
    run_sql(&postgres_url(), &sql).await;
    let error = refusal(&as_user(&name, "pw")).await;
    assert_says(&error, ErrorKind::Invalid, &["read-only replica", "primary"]);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {name} CASCADE; DROP ROLE {name}")).await;
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused() {
    let name = fresh_schema();
    let sql = format!(
        "CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'pw'; ALTER ROLE {name} SET default_transaction_read_only = on"
    );
    run_sql(&postgres_url(), &sql).await;
    let error = refusal(&with(&as_user(&name, "pw"), &name, "")).await;
    assert_says(&error, ErrorKind::Unavailable, &["takes no writes", "primary"]);
    run_sql(&postgres_url(), &format!("DROP ROLE {name}")).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    drop(PostgresStore::open_url(&url).await.expect("a fresh schema opens"));
    run_sql(&postgres_url(), &format!("UPDATE {schema}.meta SET version = 99")).await;
    let error = refusal(&url).await;
    assert_says(&error, ErrorKind::Corrupt, &["version 99", &schema, "newer Quell"]);
    run_sql(&postgres_url(), &format!("UPDATE {schema}.meta SET version = 7")).await;
    drop(PostgresStore::open_url(&url).await.expect("it is as it was"));
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn a_store_of_version_4_goes_on_where_it_was_and_has_room_from_then_on() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    let store = PostgresStore::open_url(&url).await.expect("a fresh schema opens");
    append(&*store, ["a", "b"].map(|key| event("q", key))).await;
    let held = claim(&*store, ClaimRequest { max: 1, ..claim_request(&worker("w")) }).await.batches;
    drop(store);
    let back = "ALTER TABLE %.lane SET (fillfactor = 70); INSERT INTO %.lease (queue_id, lease_at, lane_id, claim_id)
                SELECT g.queue_id, g.lease_at, unnest(g.lanes), g.claim_id FROM %.lease_group g;
                DROP TABLE %.lease_group;
                UPDATE %.meta SET version = 4";
    run_sql(&postgres_url(), &[WITHOUT_FIRSTS, back].concat().replace('%', &schema)).await;
    let store = PostgresStore::open_url(&url).await.expect("an older schema opens");
    assert_eq!(store.description().schema, 7);
    settle(&*store, &held[0], SUCCEEDED).await;
    assert_eq!(claim_all(&*store).await.len(), 1, "the other lane waited meanwhile");
    assert_eq!(verify(&*store).await.problems, Vec::<String>::new());
    drop(store);
    let room = "DO $$ BEGIN
                  IF NOT EXISTS (SELECT FROM pg_class WHERE oid = '%.lane'::regclass AND 'fillfactor=30' = ANY(reloptions))
                  THEN RAISE EXCEPTION 'the pages of lanes are as full as before'; END IF;
                END $$";
    run_sql(&postgres_url(), &room.replace('%', &schema)).await;
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn a_schema_of_another_program_is_refused() {
    let schema = fresh_schema();
    run_sql(&postgres_url(), &format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.lane (id int)")).await;
    let error = refusal(&with(&postgres_url(), &schema, "")).await;
    assert_says(&error, ErrorKind::Invalid, &["belongs to another program", "schema="]);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn a_sealed_store_refuses_to_write_and_still_answers_reads() {
    let schema = fresh_schema();
    let store = PostgresStore::open_url(&with(&postgres_url(), &schema, "")).await.expect("it opens");
    append_one(&*store, event("chat", "k1")).await;
    run_sql(&postgres_url(), &format!("UPDATE {schema}.meta SET sealed = 'moved to another database'")).await;
    let error = try_append(&*store, [event("chat", "k1")]).await.expect_err("it is sealed");
    assert_says(&error, ErrorKind::Unavailable, &["sealed", "moved to another database"]);
    assert!(store.inspect(Inspect::Stats).await.is_ok());
    run_sql(&postgres_url(), &format!("UPDATE {schema}.meta SET sealed = NULL")).await;
    assert_eq!(claim_all(&*store).await.len(), 1);
    drop(store);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn many_who_open_a_fresh_schema_at_once_make_it_once() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { PostgresStore::open_url(&url).await })
        })
        .collect();
    for task in tasks {
        drop(task.await.expect("no task panics").expect("each of them opens it"));
    }
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn health_tells_what_the_server_is_worth() {
    let schema = fresh_schema();
    let store = PostgresStore::open_url(&with(&postgres_url(), &schema, "")).await.expect("it opens");
    let description = store.description();
    assert_eq!((description.kind, &description.durability), ("postgres", &Durability::Durable));
    assert!(description.place.contains(&schema) && !description.place.contains("quelltest"));
    let health = health(&*store).await;
    for name in
        ["server_version", "fsync", "synchronous_commit", "statement_mode", "schema_version", "lane_bytes"]
    {
        assert!(health.facts.iter().any(|(fact, _)| fact == name), "{name}: {:?}", health.facts);
    }
    assert!(health.wall_divergence_ms.abs() < 60_000);
    drop(store);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test]
async fn a_pooler_is_seen_by_the_port_of_the_server_behind_it() {
    let pooler_of = async |url: &str| {
        let schema = fresh_schema();
        let store =
            PostgresStore::open_url(&with(url, &schema, "&statement_mode=unnamed")).await.expect("it opens");
        let health = health(&*store).await;
        drop(store);
        run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
        assert!(!health.warnings.iter().any(|w| w.text.contains("pooler")), "{:?}", health.warnings);
        health.facts.into_iter().find(|(name, _)| name == "pooler").map(|(_, seen)| seen)
    };
    assert_eq!(pooler_of(&postgres_url()).await.as_deref(), Some("none seen"));
    let seen = pooler_of(&pgbouncer_url()).await.unwrap_or_default();
    assert!(seen.starts_with("seen: the server itself listens on port"), "{seen}");
}

#[tokio::test]
async fn a_server_without_fsync_is_called_what_it_is() {
    let name = fresh_schema();
    let sql = format!(
        "CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'pw'; ALTER ROLE {name} SET synchronous_commit = off"
    );
    run_sql(&postgres_url(), &sql).await;
    let store = PostgresStore::open_url(&with(&as_user(&name, "pw"), &name, "")).await.expect("it opens");
    match store.description().durability {
        Durability::BestEffort(text) => assert!(text.contains("synchronous_commit is off"), "{text}"),
        Durability::Durable => panic!("it is not"),
    }
    let warnings = health(&*store).await.warnings;
    let weak = warnings.iter().find(|w| w.text.contains("synchronous_commit")).expect("it is told");
    assert!(weak.fix.contains("ALTER SYSTEM SET synchronous_commit = on"), "{weak:?}");
    drop(store);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {name} CASCADE; DROP ROLE {name}")).await;
}

#[tokio::test]
async fn the_trail_cannot_be_changed_past_the_store() {
    let schema = fresh_schema();
    let url = with(&postgres_url(), &schema, "");
    let store = PostgresStore::open_url(&url).await.expect("it opens");
    append_one(&*store, event("chat", "k1")).await;
    assert_eq!(claim_all(&*store).await.len(), 1);
    let (client, connection) =
        tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.expect("the server is there");
    tokio::spawn(connection);
    for sql in ["UPDATE %.audit SET token = 9", "DELETE FROM %.audit", "TRUNCATE %.audit"] {
        let error = client.batch_execute(&sql.replace('%', &schema)).await.expect_err("it is refused");
        let text = error.as_db_error().map_or("", |e| e.message());
        assert!(text.starts_with("audit records"), "{sql}: {error}");
    }
    refused(
        store
            .claim(quell_core::store::ClaimRequest {
                claim_id: Some(String::new()),
                ..quell_store_tests::builders::claim_request(&quell_store_tests::builders::worker("w"))
            })
            .await,
        ErrorKind::Invalid,
    );
    drop(store);
    run_sql(&postgres_url(), &format!("DROP SCHEMA {schema} CASCADE")).await;
}
