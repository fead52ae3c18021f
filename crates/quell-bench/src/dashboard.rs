//! Dashboard: what those who look cost those who send.
//!
//! Appends through a server that has very many waiting lanes, without anybody looking and then with ten clients that behave as
//! the pages' script does at its busiest: each follows the stream and fetches the live part of the first page and of the lanes
//! once a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http::{Connection, Server};
use crate::jobs::CALLERS;
use crate::place::Fresh;
use crate::processes::Program;
use crate::{Figure, Sizes, Watch, grouped, percentile};

/// People who look at the same time.
const CLIENTS: usize = 10;
/// The script looks no more often than this, however much happens.
const LOOK: Duration = Duration::from_secs(1);
const PAGES: [&str; 2] = ["/", "/ui/lanes"];

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    program: Option<&Program>,
) -> anyhow::Result<Vec<Figure>> {
    let program = program.context("there is no program to start as a server")?;
    let each = (sizes.jobs / 4 / CALLERS).max(1);
    let server = Server::start(program, fresh, &["--no-work", "--handler", "pull"], "", &[]).await?;
    server.fill(sizes.waiting).await?;
    // By turns, the better of two each: the first of them meets a cold store.
    let (mut alone, mut watched) = (0.0_f64, 0.0_f64);
    let mut looks = Vec::new();
    for round in 0..2 {
        alone = alone.max(server.append(2 * round * CALLERS * each, each).await?);
        let clients = Clients::start(&server.address).await?;
        watched = watched.max(server.append((2 * round + 1) * CALLERS * each, each).await?);
        looks.extend(clients.end().await?);
    }
    server.end().await?;
    looks.sort_by(f64::total_cmp);
    let lanes = grouped(sizes.waiting as f64);
    let figure = |what: String, value, unit| Figure::new("dashboard", what, value, unit);
    Ok(vec![
        figure(format!("append, {CALLERS} connections, {lanes} lanes wait, nobody looks"), alone, "events/s"),
        figure(format!("the same with {CLIENTS} live clients"), watched, "events/s"),
        figure("what is left of the throughput".to_owned(), watched / alone, "×"),
        figure("a look at a page p50, meanwhile".to_owned(), percentile(&looks, 0.5), "ms"),
        figure("a look at a page p99, meanwhile".to_owned(), percentile(&looks, 0.99), "ms"),
    ])
}

/// Those who look.
struct Clients {
    stop: Arc<AtomicBool>,
    tasks: JoinSet<anyhow::Result<Vec<f64>>>,
}

impl Clients {
    /// All of them have looked once when it returns.
    async fn start(address: &str) -> anyhow::Result<Self> {
        let (stop, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..CLIENTS {
            let mut connection = Connection::open(address).await?;
            for page in PAGES {
                connection.look(page).await?;
            }
            let stream = follow(address).await?;
            tasks.spawn(live(connection, stream, stop.clone()));
        }
        Ok(Clients { stop, tasks })
    }

    /// How long each look took, in milliseconds.
    async fn end(mut self) -> anyhow::Result<Vec<f64>> {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            all.extend(ended??);
        }
        Ok(all)
    }
}

async fn follow(address: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let asked = "GET /ui/stream HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(asked.as_bytes()).await?;
    Ok(stream)
}

async fn live(
    mut connection: Connection,
    mut stream: TcpStream,
    stop: Arc<AtomicBool>,
) -> anyhow::Result<Vec<f64>> {
    // What the stream says is read and thrown away; the pages are looked at as often as that can make the script do it.
    let reading = tokio::spawn(async move {
        let mut bytes = [0; 16 * 1024];
        while matches!(stream.read(&mut bytes).await, Ok(n) if n > 0) {}
    });
    let mut looks = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let begun = Watch::start();
        for page in PAGES {
            let watch = Watch::start();
            connection.look(page).await?;
            looks.push(watch.millis());
        }
        quell::clock::sleep(LOOK.saturating_sub(begun.elapsed())).await;
    }
    reading.abort();
    Ok(looks)
}
