//! Http: the same appends through the server, and what it needs for many that only wait.
//!
//! The server is a process of its own, as in production; the load generator shares the machine's cores with it and with the
//! store, so the figures say what both together reach. Its clients do as little as they can: what is measured is the server.

use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use quell::Queue;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::jobs::{CALLERS, append_by_callers};
use crate::place::Fresh;
use crate::processes::Program;
use crate::{Figure, Sizes, Watch, grouped, key, payload, percentile, targets};

/// Long polls that wait for nothing.
const POLLS: usize = 1_000;
/// How long the paced appends go on.
const PACED: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    program: Option<&Program>,
) -> anyhow::Result<Vec<Figure>> {
    let program = program.context("there is no program to start as a server")?;
    let each = (sizes.jobs / 4 / CALLERS).max(1);
    // In this process and over HTTP by turns, the better of two each: the first of them meets a cold store.
    let (engine, _) = fresh.open(Queue::none(), 1).await?;
    let args = ["--no-work", "--handler", "pull"];
    let server = Server::start(program, fresh, &args, "", &[]).await?;
    let (mut inside, mut through) = (0.0_f64, 0.0_f64);
    for round in 0..2 {
        inside = inside.max(append_by_callers(&engine, 2 * round * CALLERS * each, each).await?);
        through = through.max(server.append((2 * round + 1) * CALLERS * each, each).await?);
    }
    let mut latencies = server.paced(4 * CALLERS * each, through / 2.0, PACED).await?;
    latencies.sort_by(f64::total_cmp);
    let (p50, p99) = (percentile(&latencies, 0.5), percentile(&latencies, 0.99));

    server.fill(sizes.http_lanes).await?;
    let polls = server.polls().await?;
    let resident = server.resident_mb();
    drop(polls);
    server.end().await?;

    let ratio = through / inside;
    let whole =
        Figure::new("http", format!("append, {CALLERS} connections, one event each"), through, "events/s");
    let mut figures = vec![
        Figure::new("http", format!("append in this process, {CALLERS} callers"), inside, "events/s"),
        whole.target(
            format!("≥ {:.1} × in this process", targets::HTTP_OF_PROCESS),
            ratio >= targets::HTTP_OF_PROCESS,
        ),
        Figure::new("http", "what is left of the throughput in this process", ratio, "×"),
        Figure::new("http", "acknowledgement p50 at half that load", p50, "ms"),
        Figure::new("http", "acknowledgement p99 at half that load", p99, "ms").at_most(targets::HTTP_P99_MS),
    ];
    if let Some(resident) = resident {
        let lanes = grouped(sizes.http_lanes as f64);
        let what = format!(
            "memory of the server with {lanes} waiting lanes and {} idle long polls",
            grouped(POLLS as f64)
        );
        figures.push(Figure::new("http", what, resident, "MB").at_most(targets::RESIDENT_MB));
    }
    Ok(figures)
}

/// `quell serve`.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// A folder of its own to stand in: a configuration of the person who measures is not ours.
    _folder: TempDir,
}

impl Server {
    /// With this configuration, unless it is empty, and with these variables beside those of this process.
    pub(crate) async fn start(
        program: &Program,
        fresh: &Fresh,
        args: &[&str],
        config: &str,
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        if !config.is_empty() {
            std::fs::write(folder.path().join("quell.toml"), config)?;
        }
        let mut child = Command::new(&program.path)
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "error"])
            .args(args)
            // By the environment, so that no password is in the list of processes.
            .env("QUELL_STORE", &fresh.url)
            .envs(env.iter().copied())
            .current_dir(folder.path())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr is a pipe")?).lines();
        let address = loop {
            let line = tokio::time::timeout(PATIENCE, lines.next_line())
                .await
                .context("the server does not start")??;
            let line = line.context("the server ended")?;
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split(' ').next().unwrap_or_default().to_owned();
            }
        };
        // Read on, or its next word would find nobody.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Server { child, address, _folder: folder })
    }

    /// Events per second of so many connections that each send one event after the other.
    pub(crate) async fn append(&self, first: usize, each: usize) -> anyhow::Result<f64> {
        let mut connections = Vec::with_capacity(CALLERS);
        for _ in 0..CALLERS {
            connections.push(Connection::open(&self.address).await?);
        }
        let watch = Watch::start();
        let mut tasks = JoinSet::new();
        for (caller, mut connection) in connections.into_iter().enumerate() {
            let start = first + caller * each;
            tasks.spawn(async move {
                for n in start..start + each {
                    connection.append(n).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(watch.rate(CALLERS * each))
    }

    /// Milliseconds from the moment at which each request was to be sent, at this rate over all connections.
    pub(crate) async fn paced(
        &self,
        first: usize,
        rate: f64,
        duration: Duration,
    ) -> anyhow::Result<Vec<f64>> {
        let every = Duration::from_secs_f64(CALLERS as f64 / rate);
        let watch = Watch::start();
        let mut tasks = JoinSet::new();
        for caller in 0..CALLERS {
            let mut connection = Connection::open(&self.address).await?;
            let begin = every.mul_f64(caller as f64 / CALLERS as f64);
            tasks.spawn(async move {
                let (mut at, mut n, mut latencies) = (begin, first + caller, Vec::new());
                while at < duration {
                    quell::clock::sleep(at.saturating_sub(watch.elapsed())).await;
                    connection.append(n).await?;
                    latencies.push((watch.elapsed().saturating_sub(at)).as_secs_f64() * 1_000.0);
                    at += every;
                    n += CALLERS;
                }
                anyhow::Ok(latencies)
            });
        }
        let mut all = Vec::new();
        while let Some(ended) = tasks.join_next().await {
            all.extend(ended??);
        }
        Ok(all)
    }

    /// Lanes that wait for a day.
    pub(crate) async fn fill(&self, lanes: usize) -> anyhow::Result<()> {
        let mut connection = Connection::open(&self.address).await?;
        for start in (0..lanes).step_by(crate::BULK) {
            let events: Vec<_> = (start..(start + crate::BULK).min(lanes))
                .map(|n| {
                    let window = serde_json::json!({ "fixed": { "wait_ms": 86_400_000u64 } });
                    serde_json::json!({ "key": format!("waits-{n}"), "payload": { "n": n }, "window": window })
                })
                .collect();
            let body = serde_json::to_string(&events)?;
            connection.request("/v1/queues/waiting/events", &body, 202).await?;
        }
        Ok(())
    }

    /// Workers that ask for what nobody sends; answered only when they are dropped.
    async fn polls(&self) -> anyhow::Result<Vec<TcpStream>> {
        let body =
            serde_json::json!({ "queues": ["nothing"], "worker": "bench", "wait_ms": 55_000 }).to_string();
        let mut streams = Vec::with_capacity(POLLS);
        for _ in 0..POLLS {
            let mut stream = TcpStream::connect(&self.address).await?;
            stream.write_all(request("/v1/claims", &body).as_bytes()).await?;
            streams.push(stream);
        }
        // Until all of them stand in line.
        quell::clock::sleep(Duration::from_secs(3)).await;
        Ok(streams)
    }

    pub(crate) fn resident_mb(&self) -> Option<f64> {
        crate::waiting::resident_mb_of(&self.child.id()?.to_string())
    }

    /// The most that it ever had.
    pub(crate) fn peak_mb(&self) -> Option<f64> {
        crate::waiting::peak_mb_of(&self.child.id()?.to_string())
    }

    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("the server cannot be stopped")
    }
}

/// One connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("the server does not listen")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, read: Vec::with_capacity(1_024) })
    }

    async fn append(&mut self, n: usize) -> anyhow::Result<()> {
        let body = format!("{{\"key\":\"{}\",\"payload\":{}}}", key(n), payload(n).as_str());
        self.request("/v1/queues/bench/events", &body, 202).await
    }

    /// What the dashboard's script fetches of a page.
    pub(crate) async fn look(&mut self, page: &str) -> anyhow::Result<()> {
        let asked = format!("GET {page} HTTP/1.1\r\nHost: localhost\r\nHX-Request: true\r\n\r\n");
        self.exchange(&asked, 200).await
    }

    pub(crate) async fn request(&mut self, path: &str, body: &str, wanted: u16) -> anyhow::Result<()> {
        self.exchange(&request(path, body), wanted).await
    }

    async fn exchange(&mut self, asked: &str, wanted: u16) -> anyhow::Result<()> {
        self.stream.write_all(asked.as_bytes()).await?;
        self.read.clear();
        let head = loop {
            anyhow::ensure!(
                self.stream.read_buf(&mut self.read).await? > 0,
                "the server closed the connection"
            );
            if let Some(at) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let text = std::str::from_utf8(&self.read[..head])?;
        let status: u16 = text.get(9..12).unwrap_or_default().parse().unwrap_or(0);
        let length = text.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("an answer without a length")?.parse()?;
        while self.read.len() < head + length {
            anyhow::ensure!(self.stream.read_buf(&mut self.read).await? > 0, "the answer broke off");
        }
        let told = || String::from_utf8_lossy(&self.read[head..]).into_owned();
        anyhow::ensure!(status == wanted, "the server answered {status}: {}", told());
        Ok(())
    }
}

fn request(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
