//! Servers that must be refused, each with the words that help.

use quell_core::error::{ErrorKind, StoreError};
use quell_core::inspect::{Inspect, Inspected};
use quell_core::store::{Durability, Store};
use quell_store_redis::{Options, RedisStore};
use quell_test_servers::{Options as Server, Redis};

async fn refused(url: &str) -> StoreError {
    match RedisStore::open(Options::parse(url).expect("a good address")).await {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error,
    }
}

fn started(options: Server) -> Redis {
    Redis::start_with(options).expect("a server starts")
}

/// One plain command.
async fn said(url: &str, words: &[&str]) {
    let client = redis::Client::open(url).expect("a good address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("the server answers");
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(word);
    }
    command.exec_async(&mut connection).await.expect("the server does it");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_with_the_line_that_helps() {
    let server = started(Server::default().setting("maxmemory-policy", "allkeys-lru"));
    let error = refused(&server.url()).await;
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert!(error.detail.contains("CONFIG SET maxmemory-policy noeviction"), "{error}");
}

#[tokio::test]
async fn a_server_without_a_log_is_refused_unless_that_is_accepted() {
    let server = started(Server::default().setting("appendonly", "no"));
    let error = refused(&server.url()).await;
    assert!(error.detail.contains("CONFIG SET appendonly yes"), "{error}");
    let options = Options::parse(&format!("{}?durability=besteffort", server.url())).unwrap();
    let store = RedisStore::open(options).await.unwrap();
    let Durability::BestEffort(text) = store.description().durability else { panic!("it keeps no log") };
    assert!(text.contains("lost when the server stops"), "{text}");
}

#[tokio::test]
async fn a_second_that_may_be_lost_is_told() {
    let server = started(Server::default().setting("appendfsync", "everysec"));
    let store = RedisStore::open(Options::parse(&server.url()).unwrap()).await.unwrap();
    let Durability::BestEffort(text) = store.description().durability else {
        panic!("not every write is synced")
    };
    assert!(text.contains("one second"), "{text}");
    let Inspected::Health(health) = store.inspect(Inspect::Health).await.unwrap() else {
        panic!("asked for health")
    };
    assert!(health.warnings.iter().any(|w| w.fix.contains("appendfsync always")), "{:?}", health.warnings);
    // What an operator changes is seen without a restart.
    said(&server.url(), &["CONFIG", "SET", "appendfsync", "always"]).await;
    let Inspected::Health(health) = store.inspect(Inspect::Health).await.unwrap() else {
        panic!("asked for health")
    };
    assert_eq!(health.description.durability, Durability::Durable);
    assert!(health.warnings.is_empty(), "{:?}", health.warnings);
}

#[tokio::test]
async fn a_replica_is_refused() {
    let primary = started(Server::default());
    let port = primary.port().to_string();
    let replica = started(Server::default());
    said(&replica.url(), &["REPLICAOF", "127.0.0.1", &port]).await;
    let error = refused(&replica.url()).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.detail.contains("primary"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_told_and_never_shown() {
    let server = started(Server::default().password("right"));
    let with = |password: &str| format!("redis://:{password}@127.0.0.1:{}/0", server.port());
    let error = refused(&with("hunter2")).await;
    assert!(error.detail.contains("password") && !error.detail.contains("hunter2"), "{error}");
    let error = refused(&format!("redis://127.0.0.1:{}/0", server.port())).await;
    assert!(error.detail.contains("password"), "{error}");
    let store = RedisStore::open(Options::parse(&with("right")).unwrap()).await.unwrap();
    assert!(!store.description().place.contains("right"), "{:?}", store.description());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let mut server = started(Server::default());
    server.stop().unwrap();
    let error = refused(&server.url()).await;
    assert_eq!(error.kind, ErrorKind::Unavailable);
    let port = server.port().to_string();
    assert!(error.detail.contains(&port) && error.detail.contains("is the server running"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_told_from_one_that_is_away() {
    let server = started(Server::default());
    let error = refused(&format!("rediss://127.0.0.1:{}/0", server.port())).await;
    assert!(error.detail.contains("redis://") || error.detail.contains("secure"), "{error}");
}

#[tokio::test]
async fn data_of_a_newer_version_are_left_alone() {
    let server = started(Server::default());
    said(&server.url(), &["HSET", "quell:{p0}:meta", "schema", "99"]).await;
    let error = refused(&server.url()).await;
    assert_eq!(error.kind, ErrorKind::Corrupt);
    assert!(error.detail.contains("version 99") && error.detail.contains("newer Quell"), "{error}");
}

#[tokio::test]
async fn a_server_that_hides_its_configuration_is_used_with_a_warning() {
    let server = started(Server::default());
    said(&server.url(), &["ACL", "SETUSER", "managed", "on", ">secret", "~*", "&*", "+@all", "-config"])
        .await;
    let url = format!("redis://managed:secret@127.0.0.1:{}/0", server.port());
    let store = RedisStore::open(Options::parse(&url).unwrap()).await.expect("a managed server is used");
    assert!(matches!(store.description().durability, Durability::BestEffort(_)));
    let Inspected::Health(health) = store.inspect(Inspect::Health).await.unwrap() else {
        panic!("asked for health")
    };
    assert!(health.warnings.iter().any(|w| w.text.contains("CONFIG GET")), "{:?}", health.warnings);
}

#[tokio::test]
async fn a_full_memory_stores_nothing_of_a_request() {
    use quell_store_tests::builders::{append_one, event};
    use quell_store_tests::reads;
    let server = started(Server::default());
    let store = RedisStore::open(Options::parse(&server.url()).unwrap()).await.unwrap();
    append_one(&*store, event("chat", "before")).await;
    said(&server.url(), &["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let request = quell_core::store::AppendRequest {
        events: vec![event("chat", "k").build(), event("chat", "l").build()],
        repeat: false,
    };
    let error = store.append(request).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
    assert!(error.detail.contains("maxmemory"), "{error}");
    said(&server.url(), &["CONFIG", "SET", "maxmemory", "0"]).await;
    let verified = reads::verify(&*store).await;
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    assert_eq!(reads::totals(&*store, "chat").await.accepted, 1);
}
