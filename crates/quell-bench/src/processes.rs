//! Processes: the same drain by one, two and four worker processes.
//!
//! Each worker is a program that calls [`work`]. They talk by lines: the parent sends the store's URL (by stdin, so that
//! no password is in the list of processes), the worker answers `ready`; `go` starts it, and it tells how many lanes it
//! has handled so far. When the sum is right the parent closes stdin; the worker settles what it holds, says `settled N`
//! and ends. A parent that dies closes stdin as well.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use quell::{Outcome, Queue, Run, from_fn};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::place::{Fresh, Kind};
use crate::{Figure, Sizes, Watch, Working, append_all};

/// Lanes at once in each process.
const LANES: usize = 1_024;
const TELL_EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(120);

/// How to start a worker process.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub args: Vec<String>,
}

pub(crate) async fn run(
    fresh: &Fresh,
    sizes: &Sizes,
    program: Option<&Program>,
) -> anyhow::Result<Vec<Figure>> {
    let program = program.context("there is no program to start as a worker")?;
    series("processes", fresh, sizes, program, &[1, 2, 4]).await
}

/// The same drain by each of these numbers of processes.
pub(crate) async fn series(
    workload: &'static str,
    fresh: &Fresh,
    sizes: &Sizes,
    program: &Program,
    counts: &[usize],
) -> anyhow::Result<Vec<Figure>> {
    let (engine, _) = fresh.open(Queue::none(), 1).await?;
    let (mut figures, mut next, mut alone) = (Vec::new(), 0, 0.0);
    for &count in counts {
        append_all(&engine, next..next + sizes.process_lanes).await?;
        next += sizes.process_lanes;
        let drained = drain(program, &fresh.url, count, sizes.process_lanes);
        let rate = tokio::time::timeout(PATIENCE, drained).await.context("the workers are not done")??;
        let what = format!("drain by {count} process{}", if count == 1 { "" } else { "es" });
        let figure = Figure::new(workload, what, rate, "lanes/s").at(count);
        figures.push(match count {
            1 => {
                alone = rate;
                figure
            }
            2 if fresh.kind == Kind::Postgres => figure.target("more than by 1", rate > alone),
            _ => figure,
        });
    }
    Ok(figures)
}

/// Lanes per second from the start of all until the last has settled.
async fn drain(program: &Program, url: &str, count: usize, lanes: usize) -> anyhow::Result<f64> {
    let mut workers = Vec::with_capacity(count);
    for _ in 0..count {
        workers.push(Process::start(program, url).await?);
    }
    for worker in &mut workers {
        let line = worker.line().await?;
        anyhow::ensure!(line == "ready", "a worker process began with {line:?}");
    }
    let watch = Watch::start();
    let (told, mut tells) = mpsc::unbounded_channel();
    let mut readers = JoinSet::new();
    let mut inputs = Vec::with_capacity(count);
    for (index, mut worker) in workers.into_iter().enumerate() {
        worker.input.write_all(b"go\n").await?;
        let Process { input, output, child } = worker;
        inputs.push(input);
        readers.spawn(read(index, output, child, told.clone()));
    }
    drop(told);
    let mut handled = vec![0; count];
    while handled.iter().sum::<usize>() < lanes {
        tokio::select! {
            Some((index, so_far)) = tells.recv() => handled[index] = so_far,
            Some(ended) = readers.join_next() => {
                anyhow::bail!("a worker process ended too early: {:?}", ended?);
            }
        }
    }
    drop(inputs);
    let mut settled = 0;
    let mut seconds = 0.0_f64;
    while let Some(ended) = readers.join_next().await {
        settled += ended??;
        seconds = watch.elapsed().as_secs_f64();
    }
    anyhow::ensure!(settled == lanes, "{settled} of {lanes} lanes were settled");
    Ok(lanes as f64 / seconds)
}

/// Passes on what a worker tells; the answer is how many lanes it settled.
async fn read(
    index: usize,
    mut output: Lines<BufReader<ChildStdout>>,
    mut child: Child,
    told: mpsc::UnboundedSender<(usize, usize)>,
) -> anyhow::Result<usize> {
    while let Some(line) = output.next_line().await? {
        if let Some(settled) = line.strip_prefix("settled ") {
            return Ok(settled.parse()?);
        }
        let so_far = line.parse().with_context(|| format!("a worker said {line:?}"))?;
        // The receiver is gone when enough has been handled.
        let _ = told.send((index, so_far));
    }
    anyhow::bail!("it ended with {}", child.wait().await?)
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(program: &Program, url: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(&program.path);
        command.args(&program.args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", program.path.display()))?;
        let mut input = child.stdin.take().context("its stdin is a pipe")?;
        let output = BufReader::new(child.stdout.take().context("its stdout is a pipe")?).lines();
        input.write_all(format!("{url}\n").as_bytes()).await?;
        Ok(Process { child, input, output })
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        match self.output.next_line().await? {
            Some(line) => Ok(line),
            None => anyhow::bail!("a worker process ended with {}", self.child.wait().await?),
        }
    }
}

/// The worker process: what [`Program`] has to call.
pub async fn work() -> anyhow::Result<()> {
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let mut output = tokio::io::stdout();
    let url = input.next_line().await?.context("the first line is the URL of the store")?;
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let handler = from_fn(move |_: Run| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Outcome::succeeded() }
    });
    let (engine, options) = crate::open(&url, Queue::none().handler(handler), LANES).await?;
    say(&mut output, "ready").await?;
    if input.next_line().await?.is_none() {
        return Ok(());
    }
    let working = Working::start(&engine, &options)?;
    let mut end = std::pin::pin!(input.next_line());
    let mut told = 0;
    loop {
        tokio::select! {
            _ = &mut end => break,
            () = quell::clock::sleep(TELL_EVERY) => {}
        }
        let now = handled.load(Ordering::SeqCst);
        if now != told {
            told = now;
            say(&mut output, &now.to_string()).await?;
        }
    }
    let report = working.end().await?;
    say(&mut output, &format!("settled {}", report.settled)).await
}

async fn say(output: &mut tokio::io::Stdout, line: &str) -> anyhow::Result<()> {
    output.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(output.flush().await?)
}
