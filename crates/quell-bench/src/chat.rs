//! Chat: many customers write in bursts, and each burst is answered once.
//!
//! The server is `quell serve`, a process of its own with workers for eighty conversations at once. Webhooks go in over kept
//! connections, as a provider sends them; a model that thinks for 200 ms and a provider that takes the replies are local servers
//! in this process, over HTTP as well. Customers arrive more slowly than eighty conversations can be answered, so the
//! times of webhooks are those of a busy server and not those of a queue in front of it. One durable row is written without Quell
//! every few milliseconds meanwhile: what a webhook takes beyond that is Quell's own.
//!
//! What came of it is checked exactly (`bursts.rs`), and one error fails the whole workload.

mod bursts;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use quell::Queue;
use quell::clock;
use quell_chat::local::{Asked, LocalModel, LocalProviders, Received, Script};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use self::bursts::{Burst, Reply};
use crate::http::{Connection, Server};
use crate::place::Fresh;
use crate::processes::Program;
use crate::raw::Single;
use crate::{Figure, Sizes, Watch, grouped, percentile, targets};

/// Conversations that are answered at once.
const LANES: usize = 80;
const THINKING: Duration = Duration::from_millis(200);
/// A customer who is silent for so long has finished.
const QUIET: Duration = Duration::from_secs(1);
/// Customers that begin in a second. Eighty conversations, of which each is with the model for 200 ms, make room for 400.
const ARRIVALS: f64 = 240.0;
const CONNECTIONS: usize = 64;
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// A connection that was not used for so long may be closed by the server at any moment.
const STALE: Duration = Duration::from_secs(5);
/// When nothing has happened for so long, nothing will.
const PATIENCE: Duration = Duration::from_secs(60);
const PASSKEY: &str = "passkey-of-the-benchmark";
const HOOK: &str = "/webhook?token=passkey-of-the-benchmark";

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    program: Option<&Program>,
) -> anyhow::Result<Vec<Figure>> {
    let program = program.context("there is no program to start as a server")?;
    let (engine, _) = fresh.open(Queue::none(), 1).await?;
    let raw = Single::make(fresh).await?;
    let model = Script { thinking: THINKING, ..Script::computed(|asked| bursts::answer(question(asked))) };
    let model = LocalModel::start(model).await?;
    let providers = LocalProviders::start().await?;
    let mut env = LocalProviders::env().to_vec();
    env.push(("BENCH_PASSKEY", PASSKEY));
    let lanes = LANES.to_string();
    let config = config(&model, &providers);
    let server = Server::start(program, fresh, &["--concurrency", &lanes], &config, &env).await?;

    let probe = Probe::start(raw);
    let connections = Arc::new(Connections::open(&server.address).await?);
    let mut load = Load::new(sizes.customers, connections);
    load.run(&providers).await?;
    let total = load.watch.elapsed();
    let raw = probe.end().await?;
    idle(&engine).await?;
    let peak = server.peak_mb();
    server.end().await?;

    let replies: Vec<Reply> = providers.delivered().into_iter().map(reply).collect();
    let questions: Vec<String> = model.asked().iter().map(|asked| question(asked).to_owned()).collect();
    let checked = bursts::check(sizes.customers, &replies, &questions).map_err(anyhow::Error::msg);
    checked.with_context(|| load.excuse())?;
    Ok(load.figures(replies.len(), total, raw, peak))
}

fn config(model: &LocalModel, providers: &LocalProviders) -> String {
    format!(
        "[endpoints.bench]\nscheme = \"wati\"\nsecret_env = \"BENCH_PASSKEY\"\npath = \"/webhook\"\n\
         [chat.default]\nwait_time_before_replying_ms = {}\nnatural_delays_enabled = false\n\
         typing_indicator_enabled = false\nduring_run = \"queue\"\n\
         model = {{ name = \"local\", url = \"{}\", stream = false }}\n{}",
        QUIET.as_millis(),
        model.base_url(),
        providers.settings()
    )
}

fn question(asked: &Asked) -> &str {
    asked.messages.last().map(|turn| turn.content.as_str()).unwrap_or_default()
}

fn reply(received: Received) -> Reply {
    Reply { to: received.to, text: received.text }
}

/// Waits until every run is settled: a reply too many would come before that.
async fn idle(engine: &quell::Engine) -> anyhow::Result<()> {
    let watch = Watch::start();
    loop {
        let stats = engine.stats().await?;
        let left = stats.iter().map(|queue| {
            let totals = &queue.totals;
            totals.buffered + totals.in_flight + totals.delayed
        });
        match left.sum::<u64>() {
            0 => return Ok(()),
            left => anyhow::ensure!(
                watch.elapsed() < PATIENCE,
                "{left} events are left after all were answered: {stats:?}"
            ),
        }
        clock::sleep(Duration::from_millis(50)).await;
    }
}

/// Durable appends without Quell, in the same minutes on the same disk.
struct Probe {
    end: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<Vec<f64>>>,
}

impl Probe {
    fn start(mut raw: Single) -> Self {
        let (end, mut ended) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let mut took = Vec::new();
            loop {
                let millis;
                (raw, millis) = raw.commit().await?;
                took.push(millis);
                tokio::select! {
                    // Also when nobody is there any more to say so.
                    _ = &mut ended => return Ok(took),
                    () = clock::sleep(PROBE_EVERY) => {}
                }
            }
        });
        Probe { end, task }
    }

    async fn end(self) -> anyhow::Result<Vec<f64>> {
        drop(self.end);
        self.task.await?
    }
}

/// Those of a provider: kept, used by one burst at a time and all by turns.
struct Connections {
    address: String,
    /// With the time since their last use.
    free: Mutex<VecDeque<(Connection, Watch)>>,
    permits: Semaphore,
}

impl Connections {
    async fn open(address: &str) -> anyhow::Result<Self> {
        let mut free = VecDeque::with_capacity(CONNECTIONS);
        for _ in 0..CONNECTIONS {
            free.push_back((Connection::open(address).await?, Watch::start()));
        }
        let permits = Semaphore::new(CONNECTIONS);
        Ok(Connections { address: address.to_owned(), free: Mutex::new(free), permits })
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<(Connection, Watch)>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was free for the longest time, or a new one in its place.
    async fn next(&self) -> anyhow::Result<Connection> {
        let next = self.free().pop_front();
        match next {
            Some((connection, unused)) if unused.elapsed() < STALE => Ok(connection),
            _ => Connection::open(&self.address).await,
        }
    }

    /// Sends a burst, each message when the one before it is taken.
    async fn send(&self, burst: Burst, since: Watch) -> anyhow::Result<Sent> {
        // From here on the customer waits, also for a connection.
        let mut watch = Watch::start();
        let _permit = self.permits.acquire().await?;
        let mut connection = self.next().await?;
        let mut took = Vec::new();
        for delivery in burst.deliveries() {
            connection
                .request(HOOK, &delivery, 200)
                .await
                .with_context(|| format!("a webhook of {burst}"))?;
            took.push(watch.millis());
            watch = Watch::start();
        }
        self.free().push_back((connection, Watch::start()));
        Ok(Sent { burst, took, ended: since.elapsed() })
    }
}

/// A burst that was taken in.
struct Sent {
    burst: Burst,
    /// Milliseconds of each webhook.
    took: Vec<f64>,
    ended: Duration,
}

/// All that customers do, and what they see.
struct Load {
    customers: usize,
    watch: Watch,
    connections: Arc<Connections>,
    sending: JoinSet<anyhow::Result<Sent>>,
    sent: Vec<Sent>,
    /// When each reply came.
    replied: HashMap<Burst, Duration>,
}

impl Load {
    fn new(customers: usize, connections: Arc<Connections>) -> Self {
        Load {
            customers,
            watch: Watch::start(),
            connections,
            sending: JoinSet::new(),
            sent: Vec::new(),
            replied: HashMap::new(),
        }
    }

    /// Until as many replies have come as there are bursts.
    async fn run(&mut self, providers: &LocalProviders) -> anyhow::Result<()> {
        let bursts = Burst::all(self.customers).count();
        let (mut begun, mut seen) = (0, 0);
        while seen < bursts || self.sent.len() < bursts {
            let due = Duration::from_secs_f64(begun as f64 / ARRIVALS).saturating_sub(self.watch.elapsed());
            tokio::select! {
                () = clock::sleep(due), if begun < self.customers => {
                    self.send(Burst { customer: begun, number: 1 });
                    begun += 1;
                }
                Some(sent) = self.sending.join_next() => self.sent.push(sent??),
                replies = newer(providers, seen) => {
                    seen += replies.len();
                    self.take(&replies);
                }
                () = clock::sleep(PATIENCE) => {
                    anyhow::bail!("{seen} of {bursts} bursts were answered, and nothing more comes");
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, burst: Burst) {
        let (connections, since) = (self.connections.clone(), self.watch);
        self.sending.spawn(async move { connections.send(burst, since).await });
    }

    /// Some customers have more to say when they have read their first reply.
    fn take(&mut self, replies: &[Reply]) {
        for burst in replies.iter().filter_map(Reply::burst) {
            let first = self.replied.insert(burst, self.watch.elapsed()).is_none();
            if let Some(next) = burst.next().filter(|_| first) {
                self.send(next);
            }
        }
    }

    /// A machine that holds up the customers makes several bursts of one, and that would be no error of Quell's.
    fn excuse(&self) -> String {
        let slowest = self.sent.iter().flat_map(|sent| &sent.took).copied().fold(0.0, f64::max);
        let quiet = QUIET.as_millis();
        format!(
            "the slowest webhook took {slowest:.0} ms, and {quiet} ms of silence end a burst; \
             if it is near that, the machine was too busy"
        )
    }

    fn figures(&self, replies: usize, total: Duration, mut raw: Vec<f64>, peak: Option<f64>) -> Vec<Figure> {
        let figure = |what: &str, value: f64, unit| Figure::new("chat", what, value, unit);
        let mut took: Vec<f64> = self.sent.iter().flat_map(|sent| sent.took.clone()).collect();
        let mut waited: Vec<f64> = self.sent.iter().filter_map(|sent| self.waited(sent)).collect();
        for samples in [&mut took, &mut waited, &mut raw] {
            samples.sort_by(f64::total_cmp);
        }
        let (webhook, append) = (percentile(&took, 0.5), percentile(&raw, 0.5));
        let (seconds, bursts) = (total.as_secs_f64(), self.sent.len());
        let mut figures = vec![
            figure("replies, one for each burst, whole and in order", replies as f64, "")
                .target(format!("exactly {}", grouped(bursts as f64)), replies == bursts),
            figure("from the first message to the last reply", seconds, "s"),
            figure("bursts answered", bursts as f64 / seconds, "bursts/s"),
            figure("webhook p50, against a durable append", webhook, "ms").against(append),
            figure("webhook p50 beyond a durable append", (webhook - append).max(0.0), "ms")
                .at_most(targets::CHAT_BEYOND_RAW_MS),
            figure("webhook p99, against a durable append", percentile(&took, 0.99), "ms")
                .against(percentile(&raw, 0.99)),
            figure("reply p50, beyond the silence and the model", percentile(&waited, 0.5), "ms"),
            figure("reply p99, beyond the silence and the model", percentile(&waited, 0.99), "ms"),
        ];
        if let Some(peak) = peak {
            let what = "most memory that the server ever had";
            figures.push(figure(what, peak, "MB").at_most(targets::RESIDENT_MB));
        }
        figures
    }

    /// From the end of a burst to its reply, without what nobody could make shorter.
    fn waited(&self, sent: &Sent) -> Option<f64> {
        let whole = self.replied.get(&sent.burst)?.saturating_sub(sent.ended);
        Some(whole.saturating_sub(QUIET + THINKING).as_secs_f64() * 1_000.0)
    }
}

/// Waits for replies after the first so many.
async fn newer(providers: &LocalProviders, seen: usize) -> Vec<Reply> {
    let found = Mutex::new(Vec::new());
    let look = |all: &[Received]| {
        let newer: Vec<Reply> = all[seen.min(all.len())..].iter().cloned().map(reply).collect();
        let some = !newer.is_empty();
        *found.lock().unwrap_or_else(PoisonError::into_inner) = newer;
        some
    };
    providers.wait_until(look).await;
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}
