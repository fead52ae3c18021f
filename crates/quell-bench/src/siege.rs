//! Siege: what hostile clients cost those who mean well.
//!
//! Paced appends through a server, first alone and then while two thousand connections each send a head byte by byte and come
//! back when they are closed, and a hundred senders send bodies that are larger, deeper or more than they say. What is measured
//! is the time of the well-meaning, by the moment at which each request was to be sent, and the memory of the server.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::http::Server;
use crate::place::Fresh;
use crate::processes::Program;
use crate::{Figure, Sizes, grouped, percentile};

/// Connections whose heads come byte by byte.
const SLOW: usize = 2_000;
/// Senders of bodies that are meant to do harm.
const BOMBS: usize = 100;
/// The well-meaning: so many appends per second.
const RATE: f64 = 500.0;
const BYTE_EVERY: Duration = Duration::from_secs(1);
/// A bomb that was refused is not the last one of its sender.
const BOMB_EVERY: Duration = Duration::from_millis(500);

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    program: Option<&Program>,
) -> anyhow::Result<Vec<Figure>> {
    let program = program.context("there is no program to start as a server")?;
    let server = Server::start(program, fresh, &["--no-work", "--handler", "pull"], "", &[]).await?;
    // The first appends meet a cold store.
    server.paced(0, RATE, Duration::from_secs(1)).await?;
    let mut alone = server.paced(1_000_000, RATE, sizes.siege).await?;
    let (before, peak_before) = (server.resident_mb(), server.peak_mb());
    let besiegers = Besiegers::start(&server.address).await?;
    let mut beside = server.paced(2_000_000, RATE, sizes.siege).await?;
    let told = besiegers.end().await;
    let peak = server.peak_mb();
    server.end().await?;

    anyhow::ensure!(
        told.bombs > 0 && told.taken == 0,
        "{} of {} bombs were taken in",
        told.taken,
        told.bombs
    );
    alone.sort_by(f64::total_cmp);
    beside.sort_by(f64::total_cmp);
    let who = format!("{} slow heads and {BOMBS} senders of bombs", grouped(SLOW as f64));
    let figure = |what: String, value, unit| Figure::new("siege", what, value, unit);
    let mut figures = vec![
        figure(format!("append p50 at {RATE}/s, alone"), percentile(&alone, 0.5), "ms"),
        figure(format!("append p99 at {RATE}/s, alone"), percentile(&alone, 0.99), "ms"),
        figure(format!("append p50 beside {who}"), percentile(&beside, 0.5), "ms"),
        figure(format!("append p99 beside {who}"), percentile(&beside, 0.99), "ms"),
        figure("bombs that were sent, all refused".to_owned(), told.bombs as f64, ""),
        figure("slow connections that the server closed".to_owned(), told.closed as f64, ""),
    ];
    let memory = [("before", before), ("at the most before", peak_before), ("at the most", peak)];
    figures.extend(
        memory
            .into_iter()
            .filter_map(|(when, mb)| mb.map(|mb| figure(format!("memory of the server, {when}"), mb, "MB"))),
    );
    Ok(figures)
}

/// What the besiegers have met with.
struct Told {
    bombs: u64,
    /// Bombs that the server said yes to.
    taken: u64,
    closed: u64,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    bombs: AtomicU64,
    taken: AtomicU64,
    closed: AtomicU64,
}

struct Besiegers {
    counts: Arc<Counts>,
    tasks: JoinSet<()>,
}

impl Besiegers {
    /// All slow ones are connected when it returns.
    async fn start(address: &str) -> anyhow::Result<Self> {
        let (counts, mut tasks) = (Arc::new(Counts::default()), JoinSet::new());
        for _ in 0..SLOW {
            let stream = TcpStream::connect(address).await.context("a slow connection is not accepted")?;
            tasks.spawn(slow(stream, address.to_owned(), counts.clone()));
        }
        let bombs: Arc<[Vec<u8>]> = bombs()?.into();
        for n in 0..BOMBS {
            tasks.spawn(send_bombs(n, bombs.clone(), address.to_owned(), counts.clone()));
        }
        Ok(Besiegers { counts, tasks })
    }

    async fn end(mut self) -> Told {
        self.counts.stop.store(true, Ordering::SeqCst);
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        Told {
            bombs: count(&self.counts.bombs),
            taken: count(&self.counts.taken),
            closed: count(&self.counts.closed),
        }
    }
}

/// A byte at a time, and again when the server has had enough.
async fn slow(mut stream: TcpStream, address: String, counts: Arc<Counts>) {
    let head = b"GET /healthz HTTP/1.1\r\nX-Slow: ";
    loop {
        for at in 0.. {
            let byte = head.get(at).copied().unwrap_or(b'x');
            let mut answer = [0; 256];
            tokio::select! {
                read = stream.read(&mut answer) => if !matches!(read, Ok(1..)) { break },
                () = quell::clock::sleep(BYTE_EVERY) => if stream.write_all(&[byte]).await.is_err() { break },
            }
        }
        counts.closed.fetch_add(1, Ordering::SeqCst);
        match TcpStream::connect(&address).await {
            Ok(new) => stream = new,
            Err(_) => return,
        }
    }
}

async fn send_bombs(n: usize, bombs: Arc<[Vec<u8>]>, address: String, counts: Arc<Counts>) {
    for at in n.. {
        if counts.stop.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(mut stream) = TcpStream::connect(&address).await {
            // The server may close while we are still sending; what it has said by then counts.
            let _ = stream.write_all(&bombs[at % bombs.len()]).await;
            let mut answer = [0; 12];
            let said = stream.read_exact(&mut answer).await.is_ok();
            counts.bombs.fetch_add(1, Ordering::SeqCst);
            if said && answer[9] == b'2' {
                counts.taken.fetch_add(1, Ordering::SeqCst);
            }
        }
        quell::clock::sleep(BOMB_EVERY).await;
    }
}

/// Requests that must be refused, each for another reason.
fn bombs() -> anyhow::Result<Vec<Vec<u8>>> {
    let post = |fields: &str, body: &[u8]| {
        let length = body.len();
        let mut request = format!(
            "POST /v1/queues/bombs/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{fields}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.extend_from_slice(body);
        request
    };
    let event = |payload: &str| format!("{{\"key\":\"k\",\"payload\":{payload}}}").into_bytes();
    // Ten megabytes of blanks that weigh ten kilobytes.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&event(&format!("\"{}\"", " ".repeat(10_000_000))))?;
    let deep = event(&format!("{}{}", "[".repeat(200_000), "]".repeat(200_000)));
    let wide = event(&format!("\"{}\"", "w".repeat(8_000_000)));
    let number = event(&"9".repeat(1_000_000));
    let announced =
        b"POST /v1/queues/bombs/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
        Content-Length: 100000000000\r\n\r\n{";
    let fields = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(20_000));
    Ok(vec![
        post("Content-Encoding: gzip\r\n", &gzip.finish()?),
        post("", &deep),
        post("", &wide),
        post("", &number),
        announced.to_vec(),
        fields.into_bytes(),
    ])
}
