//! Answers that are read while they come.

use std::time::Duration;

use quell_core::outcome::Outcome;
use quell_core::source::{FaultKind, SourceReport, SourceRules};
use quell_fetch::{Call, CallError, Excess, FetchError, Fetcher, Guard, Http, HttpSettings, Streamed};

use crate::server::{Server, answer, ok};
use crate::world::{World, loopback, short};

const MIB: usize = 1024 * 1024;

async fn text_of(stream: &mut Streamed<'_>) -> Result<String, FetchError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn a_stream_is_bounded_guarded_and_any_status_is_one() {
    let server = Server::local(|_, head| match head.split(' ').nth(1) {
        Some("/over") => answer("200 OK", &[], vec![b'x'; MIB + 1]),
        _ => answer("503 Busy", &[("x-a", "b")], "busy"),
    })
    .await;
    let mut opened = loopback().open(Call::get(server.url("/"))).await.unwrap();
    assert_eq!((opened.status.as_u16(), &opened.headers["x-a"]), (503, &"b".parse().unwrap()));
    assert_eq!(opened.chunk().await.unwrap().unwrap(), "busy");
    assert_eq!(opened.chunk().await, Ok(None));

    let mut over = loopback().open(Call::get(server.url("/over"))).await.unwrap();
    assert_eq!(over.chunk().await, Err(CallError::TooLarge { max: MIB }));
    let mut over = loopback().open(Call::get(server.url("/over")).excess(Excess::Drop)).await.unwrap();
    let mut length = 0;
    while let Some(chunk) = over.chunk().await.unwrap() {
        length += chunk.len();
    }
    assert_eq!(length, MIB);

    let guarded = Http::new(Guard::default(), &HttpSettings::default()).unwrap();
    assert!(matches!(guarded.open(Call::get(server.url("/"))).await, Err(CallError::Refused(_))));
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn a_stream_takes_a_token_and_is_fine_when_it_has_ended() {
    let world = World::new(SourceRules { per_minute: Some(60), burst: 10, ..SourceRules::default() }).await;
    let server = Server::local(|n, _| ok(&n.to_string())).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    for (n, asked) in [["fine"].as_slice(), &["take", "fine"], &["take", "fine"]].into_iter().enumerate() {
        let mut stream = fetcher.open(Call::get(server.url("/"))).await.unwrap();
        assert_eq!(text_of(&mut stream).await.unwrap(), n.to_string(), "nothing comes from the cache");
        assert_eq!(stream.chunk().await, Ok(None));
        assert_eq!(world.happened(), asked);
    }
    let stream = fetcher.open(Call::get(server.url("/"))).await.unwrap();
    assert_eq!(stream.status().as_u16(), 200);
    stream.enough().await.unwrap();
    assert_eq!(world.happened(), ["take", "fine"]);

    // Whoever drops it has not seen how it ends.
    drop(fetcher.open(Call::get(server.url("/"))).await.unwrap());
    assert_eq!(world.happened(), ["take"]);
    assert_eq!(fetcher.report(), SourceReport::Reported);
    world.settle(&batch, fetcher.finish(Outcome::succeeded())).await;
    assert_eq!(world.source().await.failure_streak, 0);
}

#[tokio::test]
async fn a_fault_by_status_keeps_what_the_source_said() {
    let world = World::new(SourceRules::default()).await;
    let server = Server::local(|n, head| match n {
        _ if head.starts_with("get /small") => answer("503 Busy", &[], "small"),
        0 => answer("429 Slow Down", &[("retry-after", "7"), ("x-a", "b")], "no quota"),
        1 => answer("500 Error", &[], vec![b'x'; 100_000]),
        _ => answer("503 Busy", &[], vec![b'x'; 2 * MIB]),
    })
    .await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    let mut said = Vec::new();
    for _ in 0..3 {
        match fetcher.open(Call::get(server.url("/"))).await.err() {
            Some(FetchError::Fault { fault, reply: Some(reply), .. }) => said.push((fault, reply)),
            other => panic!("{other:?}"),
        }
        // It wants to be left alone so long.
        world.clock.advance(Duration::from_secs(7));
    }
    assert_eq!(said[0].0.retry_after, Some(Duration::from_secs(7)));
    assert_eq!(
        (said[0].1.body.as_slice(), &said[0].1.headers["x-a"]),
        (&b"no quota"[..], &"b".parse().unwrap())
    );
    assert_eq!((said[1].0.kind, said[1].1.body.len()), (FaultKind::ServerError, 64 * 1024));
    assert_eq!((said[2].0.kind, said[2].1.body.len()), (FaultKind::ServerError, 64 * 1024));
    assert_eq!(world.source().await.failure_streak, 3);

    // The same for an answer that is read whole.
    let Err(FetchError::Fault { reply: Some(reply), .. }) = fetcher.get(&server.url("/small")).await else {
        panic!("503 is a fault");
    };
    assert_eq!(reply.body, b"small");
}

#[tokio::test]
async fn a_stream_that_breaks_off_or_takes_too_long_is_a_fault_each_time() {
    let world = World::new(SourceRules::default()).await;
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec();
    let server = Server::local(move |_, _| half.clone()).await;
    let batch = world.run().await;
    let fetcher = world.fetcher(&batch);
    for streak in 1..=3 {
        let mut stream = fetcher.open(Call::get(server.url("/"))).await.unwrap();
        let error = text_of(&mut stream).await.unwrap_err();
        assert!(
            matches!(&error, FetchError::Fault { fault, reply: None, .. } if fault.kind == FaultKind::Connection)
        );
        assert_eq!(world.source().await.failure_streak, streak);
    }

    // Its head comes at once and the rest never does.
    let stuck = stuck().await;
    let fetcher = Fetcher::new(short(Duration::from_millis(200)), world.store.clone(), &batch);
    let mut stream = fetcher.open(Call::get(stuck)).await.unwrap();
    let error = text_of(&mut stream).await.unwrap_err();
    assert!(
        matches!(&error, FetchError::Fault { fault, .. } if fault.kind == FaultKind::TimeOut),
        "{error:?}"
    );
    assert_eq!(world.source().await.failure_streak, 4);
}

/// A server that sends a head and then nothing, until the client closes.
async fn stuck() -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 1024];
        let _ = stream.read(&mut bytes).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
        while stream.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
    });
    format!("http://{address}/")
}
