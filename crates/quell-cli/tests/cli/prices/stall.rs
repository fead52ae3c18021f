//! A collector's folder with a market of its own: a configuration, and workers that are started, stopped, killed and read.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use quell_collectors::local::{Catalogue, LocalMarket};
use serde_json::Value;

use crate::hook::host::until;
use crate::support::{Answer, Folder, Process, items};

/// Where prices are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
}

pub(super) struct Stall {
    pub(super) folder: Folder,
    pub(super) market: LocalMarket,
    store: Option<String>,
    /// Runs the market.
    _runtime: tokio::runtime::Runtime,
}

/// Every collection asks the shop, so that each run can be seen there.
pub(super) const NO_CACHE: &str = "[sources.shop]\ncache = false\n";

impl Stall {
    /// With two sources, `ebay` and `shop`, and what else is written into the file. Every search finds three different things.
    pub(super) fn new(kind: Kind, more: &str) -> Stall {
        Stall::with(kind, more, Catalogue::generated(3))
    }

    pub(super) fn with(kind: Kind, more: &str, catalogue: Catalogue) -> Stall {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let market = runtime.block_on(LocalMarket::start(catalogue)).unwrap();
        let stall = Stall { folder: Folder::new(), market, store: store(kind), _runtime: runtime };
        stall.configure(more);
        stall
    }

    pub(super) fn configure(&self, more: &str) {
        let settings = self.market.settings();
        let quick = "[worker]\nsweep_every = \"1s\"\n";
        self.folder.write("quell.toml", &format!("{quick}[prices]\n{settings}{more}"));
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.folder.command(args);
        command.envs(LocalMarket::env());
        for name in ["JOB_LOCK_TIMEOUT_SECONDS", "WORKER_ID", "CACHE_TTL_SECONDS", "CACHE_ENABLED"] {
            command.env_remove(name);
        }
        if let Some(store) = &self.store {
            command.env("QUELL_STORE", store);
        }
        command
    }

    /// Runs a command to its end.
    pub(super) fn quell(&self, args: &[&str]) -> Answer {
        Answer::of(&mut self.command(args))
    }

    pub(super) fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        self.quell(&all).ok().json()
    }

    /// A worker with the name that the older system gave it.
    pub(super) fn worker(&self, name: &str, lock_seconds: u32, more: &[&str]) -> Process {
        let mut args = vec!["work"];
        args.extend(more);
        let mut command = self.command(&args);
        command.env("WORKER_ID", name).env("JOB_LOCK_TIMEOUT_SECONDS", lock_seconds.to_string());
        Process::start(command).started()
    }

    pub(super) fn intake(&self, id: &str) {
        self.quell(&["prices", "intake", "add", "--id", id, "--title", &format!("Coin {id}")]).ok();
    }

    /// So many intakes, `coin-0001` and on.
    pub(super) fn intakes(&self, count: usize) {
        let line = |n: usize| format!("{{\"id\":\"coin-{n:04}\",\"title\":\"Coin {n:04}\"}}\n");
        self.folder.write("coins.jsonl", &(1..=count).map(line).collect::<String>());
        self.quell(&["prices", "intake", "add", "--from", "coins.jsonl"]).ok();
    }

    /// Waits until everything that was asked for is collected and valued.
    pub(super) fn idle(&self) {
        self.quell(&["prices", "watch", "--until-idle"]).ok();
    }

    /// All runs of `collect`, whatever became of them.
    pub(super) fn runs(&self) -> Vec<Value> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut args = vec!["runs", "--queue", "collect", "--limit", "1000"];
            if let Some(cursor) = &cursor {
                args.extend(["--cursor", cursor]);
            }
            let page = self.json(&args);
            all.extend(items(&page).iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return all,
            }
        }
    }

    /// The older system's check: each job succeeded, once, and no item is stored twice.
    pub(super) fn each_exactly_once(&self, jobs: usize) -> Vec<Value> {
        let runs = self.runs();
        assert_eq!(runs.len(), jobs, "one run for each job");
        for run in &runs {
            let once = (&run["state"], &run["attempts"], &run["claims"], &run["events"]);
            assert_eq!(once, (&"succeeded".into(), &1.into(), &1.into(), &1.into()), "{run}");
        }
        self.no_duplicates();
        runs
    }

    pub(super) fn no_duplicates(&self) {
        let found = self.json(&["prices", "points", "--duplicates"]);
        assert_eq!(items(&found), Vec::<Value>::new(), "the duplicate query must return no rows");
    }

    pub(super) fn points(&self, intake: &str) -> Vec<Value> {
        items(&self.json(&["prices", "points", intake, "--limit", "1000"])).to_vec()
    }

    /// Waits until the lane of an intake at the shop is in this state.
    pub(super) fn lane_is(&self, intake: &str, state: &str) -> Value {
        let key = format!("{intake}:shop");
        let mut last = Value::Null;
        until(&format!("{key} is {state}"), || {
            last = self.json(&["lane", "collect", &key]);
            last["state"] == state
        });
        last
    }

    pub(super) fn audit(&self) -> Vec<Value> {
        items(&self.json(&["audit", "--queue", "collect", "--limit", "1000"])).to_vec()
    }
}

/// A store of its own.
fn store(kind: Kind) -> Option<String> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    if kind == Kind::Sqlite {
        return None;
    }
    let own = format!("stall{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::SeqCst));
    let url = quell_test_servers::postgres_url();
    let joint = if url.contains('?') { '&' } else { '?' };
    Some(format!("{url}{joint}pool=4&schema={own}"))
}
