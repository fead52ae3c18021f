//! beanstalkd as one of the systems: its protocol is a few lines of text, so its client is here.
//!
//! The server is started in the cell's folder with its log of writes on, flushed after `-f` milliseconds at most. One answer is
//! one line; several commands may be on their way at once, which is the nearest thing it has to a bulk.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use crate::answer::Answer;
use crate::limits;
use crate::sizes::Sizes;

/// Connections that drain, each with several reservations on its way.
const WORKERS: usize = 4;
const RESERVED_AT_ONCE: usize = 64;

/// `beanstalkd PROGRAM FLUSH_MS SHAPE FOLDER SIZES`.
///
/// # Errors
///
/// When the server does not start or answers with an error.
pub async fn driver(
    program: &Path,
    flush_ms: u32,
    shape: &str,
    folder: &str,
    sizes: &str,
) -> anyhow::Result<Answer> {
    anyhow::ensure!(shape == "jobs", "beanstalkd has no shape {shape}");
    let sizes: Sizes = serde_json::from_str(sizes).context("the sizes are not what drivers get")?;
    let (_server, port) = start(program, flush_ms, folder).await?;
    let figures = jobs(port, &sizes).await?;
    let version =
        Command::new(program).arg("-v").output().await.map(|output| output.stdout).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).trim().trim_start_matches("beanstalkd ").to_owned();
    Ok(Answer { figures, versions: BTreeMap::from([("beanstalkd".to_owned(), version)]) })
}

async fn start(program: &Path, flush_ms: u32, folder: &str) -> anyhow::Result<(Child, u16)> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut command = Command::new(program);
    command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-b", folder, "-f", &flush_ms.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    let server = command.spawn().context("cannot start beanstalkd")?;
    let watch = now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        anyhow::ensure!(watch.elapsed() < limits::START, "beanstalkd takes no connection");
        tokio::task::yield_now().await;
    }
    Ok((server, port))
}

async fn jobs(port: u16, sizes: &Sizes) -> anyhow::Result<BTreeMap<String, Option<f64>>> {
    let mut single = Client::connect(port).await?;
    let (watch, mut count) = (now(), 0);
    while count < sizes.jobs / 4 && watch.elapsed() < sizes.one() {
        single.put(count..count + 1).await?;
        count += 1;
    }
    let one = rate(count, watch);

    let (next, end) = (Arc::new(AtomicUsize::new(count)), count + sizes.jobs / 4);
    let limit = Duration::from_millis(sizes.callers_ms);
    let mut clients = Vec::new();
    for _ in 0..sizes.callers {
        clients.push(Client::connect(port).await?);
    }
    let watch = now();
    let mut callers = JoinSet::new();
    for mut client in clients {
        let next = next.clone();
        callers.spawn(async move {
            let mut sent = 0;
            while watch.elapsed() < limit {
                let n = next.fetch_add(1, Ordering::SeqCst);
                if n >= end {
                    break;
                }
                client.put(n..n + 1).await?;
                sent += 1;
            }
            anyhow::Ok(sent)
        });
    }
    let mut sent = 0;
    while let Some(caller) = callers.join_next().await {
        sent += caller??;
    }
    let by_callers = rate(sent, watch);
    count += sent;

    let (watch, first) = (now(), count);
    while count < sizes.jobs {
        let until = (count + sizes.bulk).min(sizes.jobs);
        // Numbers that no caller took: those may have gaps at their end.
        single.put(sizes.jobs + count..sizes.jobs + until).await?;
        count = until;
    }
    let bulk = rate(count - first, watch);

    let (watch, limit) = (now(), Duration::from_millis(sizes.drain_ms));
    let left = Arc::new(AtomicUsize::new(count));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (mut client, left) = (Client::connect(port).await?, left.clone());
        workers.spawn(async move {
            let mut seen = Vec::new();
            while left.load(Ordering::SeqCst) > 0 && watch.elapsed() < limit {
                let taken = client.reserve_and_delete(RESERVED_AT_ONCE).await?;
                left.fetch_sub(taken.len(), Ordering::SeqCst);
                seen.extend(taken);
            }
            anyhow::Ok(seen)
        });
    }
    let (mut handled, mut distinct) = (0, HashSet::new());
    while let Some(worker) = workers.join_next().await {
        let seen = worker??;
        handled += seen.len();
        distinct.extend(seen);
    }
    let drain = rate(handled, watch);
    let figures = [
        ("one", one),
        ("callers", by_callers),
        ("bulk", bulk),
        ("drain", drain),
        ("appended", count as f64),
        ("drained", handled as f64),
        ("distinct", distinct.len() as f64),
    ];
    Ok(figures.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect())
}

/// One connection.
struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    async fn connect(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Puts jobs with these numbers: all commands first, then all answers.
    async fn put(&mut self, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
        let count = numbers.len();
        let mut commands = String::new();
        for n in numbers {
            let body = body(n);
            commands.push_str(&format!("put 1024 0 120 {}\r\n{body}\r\n", body.len()));
        }
        self.stream.get_mut().write_all(commands.as_bytes()).await?;
        for _ in 0..count {
            let answer = self.line().await?;
            anyhow::ensure!(answer.starts_with("INSERTED "), "put was answered with {answer:?}");
        }
        Ok(())
    }

    /// Takes up to so many jobs, and deletes those it got; their numbers.
    async fn reserve_and_delete(&mut self, count: usize) -> anyhow::Result<Vec<u64>> {
        self.stream.get_mut().write_all("reserve-with-timeout 0\r\n".repeat(count).as_bytes()).await?;
        let (mut ids, mut numbers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let answer = self.line().await?;
            let Some(reserved) = answer.strip_prefix("RESERVED ") else {
                anyhow::ensure!(answer == "TIMED_OUT", "reserve was answered with {answer:?}");
                continue;
            };
            let (id, length) = reserved.split_once(' ').context("RESERVED has an id and a length")?;
            let mut body = vec![0_u8; length.parse::<usize>()? + 2];
            self.stream.read_exact(&mut body).await?;
            let job: serde_json::Value = serde_json::from_slice(&body)?;
            numbers.push(job["n"].as_u64().context("the job has no number")?);
            ids.push(id.to_owned());
        }
        let deletes: String = ids.iter().map(|id| format!("delete {id}\r\n")).collect();
        self.stream.get_mut().write_all(deletes.as_bytes()).await?;
        for _ in &ids {
            let answer = self.line().await?;
            anyhow::ensure!(answer == "DELETED", "delete was answered with {answer:?}");
        }
        Ok(numbers)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        anyhow::ensure!(self.stream.read_line(&mut line).await? > 0, "beanstalkd has closed the connection");
        Ok(line.trim_end().to_owned())
    }
}

fn body(n: usize) -> String {
    format!(r#"{{"n":{n},"text":"a short message as people send it, long enough to be typical of a chat"}}"#)
}

fn rate(count: usize, watch: Instant) -> f64 {
    count as f64 / watch.elapsed().as_secs_f64()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
