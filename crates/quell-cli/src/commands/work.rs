//! `quell work`, and what `serve` shares with it: workers that claim lanes until they are told to stop.
//!
//! The first SIGINT or SIGTERM lets handlers finish within the grace and ends with 0; the second abandons them, so that
//! their leases expire, and ends with 130 or 143. With `--processes N` this process works too and looks after N - 1
//! others (`work/processes.rs`). What a queue with the handler `log` received is shown by `work/show.rs`. SIGHUP reads the
//! configuration again (`work/reload.rs`).

mod agents;
mod chats;
mod collectors;
mod forward;
mod http;
mod processes;
mod reload;
mod show;
mod start;
mod systemd;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use quell::config::{DurationText, Flags, HandlerSettings};
use quell::quell_core::event::{QueueName, Tenant};
use quell::worker::OwnHandler;
use quell::{Engine, Shutdown, Worker, WorkerOptions, WorkerReport};
use tokio::sync::oneshot;

use crate::args::{Global, LogFormat};
use crate::context::{self, Loaded};
use crate::failure::Failure;
use crate::output;
use crate::signals::{Asked, Signals};

use agents::Agents;
use chats::Chats;
use collectors::Collectors;
pub(crate) use forward::Forwarding;
use http::Http;
use processes::Processes;
use reload::{Affected, Reloader};
use show::Show;

#[derive(Debug, Args)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    staff: Staff,
    /// Stop when nothing is due, nothing runs and nothing waits
    #[arg(long)]
    until_idle: bool,
}

/// Who works on what.
#[derive(Debug, Clone, Args)]
pub(crate) struct Staff {
    /// Processes; more than one are started and looked after by this one: signals are passed on, one that dies is replaced, none
    /// outlives this one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) processes: u16,
    /// Keys that one process works on at once
    #[arg(long, value_name = "N")]
    pub(crate) concurrency: Option<usize>,
    /// Only this queue; may be given several times
    #[arg(long = "queue", value_name = "QUEUE")]
    pub(crate) queues: Vec<String>,
    /// Only keys of this tenant
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,
    /// Without quell.toml: who handles batches, `log` (shows them) or `pull` (nobody here)
    #[arg(long, value_name = "HANDLER")]
    pub(crate) handler: Option<String>,
    /// After a signal, how long handlers may take to finish
    #[arg(long, value_name = "DURATION", value_parser = DurationText::parse)]
    pub(crate) grace: Option<Duration>,
    /// Also show the payloads of events that the handler `log` receives
    #[arg(long)]
    pub(crate) show_payloads: bool,
    /// Started by another process of ours, whose end closes our stdin.
    #[arg(long, hide = true)]
    pub(crate) looked_after: bool,
}

/// What a process is started for.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Workers alone; with `until_idle` they stop when nothing is left.
    Work { until_idle: bool },
    /// HTTP, and workers beside it unless `no_work`.
    Serve { listen: Option<String>, no_work: bool, forwarding: Option<Forwarding> },
}

impl Task {
    fn forwarding(&self) -> Option<&Forwarding> {
        match self {
            Task::Serve { forwarding, .. } => forwarding.as_ref(),
            Task::Work { .. } => None,
        }
    }

    fn until_idle(&self) -> bool {
        matches!(self, Task::Work { until_idle: true })
    }
}

pub(crate) async fn run(args: WorkArgs, global: &Global) -> Result<u8, Failure> {
    employ(args.staff, Task::Work { until_idle: args.until_idle }, global).await
}

/// Works until told to stop, or with `until_idle` until nothing is left.
pub(crate) async fn employ(staff: Staff, task: Task, global: &Global) -> Result<u8, Failure> {
    // Before anything else, so that whoever sees the start line may send signals.
    let mut signals = Signals::listen()?;
    let flags = Flags {
        concurrency: staff.concurrency,
        grace: staff.grace,
        handler: staff.handler.clone(),
        listen: match &task {
            Task::Serve { listen, .. } => listen.clone(),
            Task::Work { .. } => None,
        },
        ..Flags::default()
    };
    let loaded = context::load(global, flags.clone())?;
    let engine = context::open_patiently(&loaded).await?;
    let works = !matches!(task, Task::Serve { no_work: true, .. });
    let chats = Chats::open(&engine, &loaded, global, works).await?;
    let collectors = match works {
        true => Collectors::open(&engine, &loaded).await?,
        false => None,
    };
    let (staffed, log_format) = (staff.clone(), global.log_format);
    let hiring = Arc::new(Hiring { staff: staffed, task: task.clone(), log_format, chats, collectors });
    let reloader = Reloader::new(&engine, &loaded, global, flags, hiring.clone());
    let http = match &task {
        Task::Serve { .. } => Some(Http::bind(&engine, &loaded, reloader.for_http()).await?),
        Task::Work { .. } => None,
    };
    let worker = match works {
        true => Some(Worker::new(engine.clone(), hiring.options(&engine, &loaded)?)?),
        false => None,
    };
    let agents = worker.is_some().then(|| Agents::look_after(&engine)).flatten();
    let processes = Processes::start(&staff, task.until_idle(), global)?;
    reloader.introduce(Affected {
        worker: worker.as_ref().map(Worker::instructions),
        server: http.as_ref().map(Http::live),
        processes: processes.reloads(),
    });
    if !staff.looked_after {
        start::tell(&engine, &loaded, worker.as_ref(), http.as_ref(), &staff, &task, global);
    }
    let mut abandoned_by_parent = staff.looked_after.then(parent_gone);

    let shutdown = Shutdown::new();
    let http = http.map(|http| http.start(engine.settings().worker.grace));
    systemd::ready();
    let mut work = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            match worker {
                Some(worker) => worker.run(shutdown).await,
                None => {
                    shutdown.requested().await;
                    WorkerReport::default()
                }
            }
        }
    });
    let mut asked = 0;
    let mut code = 0;
    let report = loop {
        let stop = tokio::select! {
            report = &mut work => break report,
            asked = signals.next() => match asked {
                Asked::Stop(stop) => Some(stop),
                Asked::Reload => {
                    tokio::spawn(reloader.clone().by_signal());
                    continue;
                }
            },
            () = gone(&mut abandoned_by_parent) => None,
        };
        asked += 1;
        shutdown.request();
        systemd::stopping();
        if let Some(http) = &http {
            http.stop();
        }
        if let Some(stop) = stop {
            processes.signal(stop);
            if asked > 1 {
                code = stop.exit_code();
            }
        }
        if asked == 1 && !staff.looked_after {
            output::say("stopping: running handlers finish or are handed back; once more stops at once");
        }
    };
    if let Some(http) = http {
        asked += http.join(&mut signals, asked).await;
    }
    if let Some(agents) = agents {
        agents.leave(&engine, &loaded, global).await;
    }
    let unclean = processes.join(&mut signals, asked).await;
    let report =
        report.map_err(|e| Failure::new(crate::failure::FAILED, format!("the worker ended: {e}")))?;
    tracing::info!(
        claimed = report.claimed,
        settled = report.settled,
        lost = report.lost,
        abandoned = report.abandoned,
        "worker.ended"
    );
    Ok(if code == 0 { unclean } else { code })
}

/// How the workers of this process are chosen, at the start and whenever the configuration is read again.
struct Hiring {
    staff: Staff,
    task: Task,
    log_format: LogFormat,
    chats: Option<Chats>,
    collectors: Option<Collectors>,
}

impl Hiring {
    /// The queues and the handlers of the worker, by what was read.
    fn options(&self, engine: &Engine, loaded: &Loaded) -> Result<WorkerOptions, Failure> {
        let Hiring { staff, task, .. } = self;
        let settings = &loaded.settings;
        let queues = staff.queues.iter().map(QueueName::new).collect::<Result<Vec<_>, _>>()?;
        let mut options = WorkerOptions {
            tenant: staff.tenant.as_deref().map(Tenant::new).transpose()?,
            until_idle: task.until_idle(),
            env: loaded.env.clone(),
            ..WorkerOptions::default()
        };
        let named = queues.iter().filter_map(|name| settings.queue(name));
        let all = settings.queues.values().cloned().chain(settings.default_queue.clone()).chain(named);
        if let Some(forwarding) = task.forwarding() {
            let forward = OwnHandler { handler: forwarding.handler(), time_limit: None };
            options.handlers = all.map(|queue| (queue.name.clone(), forward.clone())).collect();
        } else if self.log_format == LogFormat::Text {
            // A program that reads the log as JSON gets the batches there, too; people get a line on stdout.
            let show =
                OwnHandler { handler: Arc::new(Show { payloads: staff.show_payloads }), time_limit: None };
            let logged = all.filter(|queue| queue.handler == HandlerSettings::Log);
            options.handlers = logged.map(|queue| (queue.name.clone(), show.clone())).collect();
        }
        if task.forwarding().is_none() {
            let mut applications = Agents::handler(engine, loaded)?;
            applications.extend(self.chats.as_ref().map(Chats::handlers).unwrap_or_default());
            if let Some(collectors) = &self.collectors {
                applications.extend(collectors.handlers(engine, loaded)?);
            }
            // A queue that the configuration gives to somebody else is theirs.
            let is_app = |name: &QueueName| {
                settings.queue(name).is_some_and(|queue| queue.handler == HandlerSettings::App)
            };
            options.handlers.extend(applications.into_iter().filter(|(name, _)| is_app(name)));
        }
        options.queues = queues;
        Ok(options)
    }
}

/// Rings when the process that started us is gone. A plain thread, because nothing can end a read of stdin.
fn parent_gone() -> oneshot::Receiver<()> {
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = tell.send(());
    });
    told
}

/// Once; never when nobody looks after us.
async fn gone(parent: &mut Option<oneshot::Receiver<()>>) {
    match parent {
        Some(told) => {
            let _ = told.await;
            *parent = None;
        }
        None => std::future::pending().await,
    }
}
