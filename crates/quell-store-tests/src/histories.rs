//! Random histories on the store under test and on the memory store, side by side: every answer must be the same.
//!
//! Numbers (lanes, runs, sequence numbers, tokens) need not be equal, only paired: `histories/compare.rs`. Before each
//! step the memory store's clock is set to what the store under test says, so a store whose clock runs is followed and
//! nothing drifts apart.
//!
//! Advances are multiples of 20 s; quiet periods, caps, leases, delays and retentions leave the remainders 5, 10 and 15.
//! So no two moments that are compared ever lie closer than 5 s together, and the milliseconds of a real clock decide
//! nothing.
//!
//! A failure prints its seed and its steps. `QUELL_HISTORIES=3000` runs more of them, `QUELL_HISTORY_SEED=17` one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use quell_core::attempt::AttemptReport;
use quell_core::batch::{Batch, WorkerId};
use quell_core::clock::{ManualClock, Timestamp};
use quell_core::event::LaneKey;
use quell_core::memory::MemoryStore;
use quell_core::outcome::Verdict;
use quell_core::store::{
    AppendRequest, ClaimQueues, ClaimRequest, Control, ControlAction, ExtendRequest, RunPolicy,
    SettleRequest, Store, SweepRequest, Swept,
};
use quell_core::window::Window;

use crate::builders::{
    EventBuilder, FAILED, RELEASE, RETRY, SUCCEEDED, append_request, event_in, from_queue, lane, lane_of,
    policy, scoped, secs, settle_request, tenant, whole,
};
use crate::chance::Chance;
use crate::reads::{assert_totals, assert_trail, health};
use crate::{Harness, World};

mod compare;
mod policies;
mod sources;

use compare::Compare;

/// Histories of all kinds together, unless the environment asks for more.
const HISTORIES: u64 = 150;
const STEPS: u64 = 60;

/// What a history is mostly about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum About {
    Windows,
    Failures,
    Operators,
    /// Everything at once: giving way, merging, halving, aside, steps, redrive, purge.
    Policies,
    /// Outside parties with limits of their own.
    Sources,
}

impl About {
    /// Without these a green run may have tested nothing.
    fn must_be_seen(self) -> Vec<&'static str> {
        let mut must = vec!["duplicate", "conflict", "lane-full", "stale-token", "settled as succeeded"];
        must.extend(match self {
            About::Windows => {
                vec![
                    "fired by none",
                    "fired by fixed",
                    "fired by quiet",
                    "fired by cap",
                    "fired by count",
                    "fired by bytes",
                ]
            }
            About::Failures => vec![
                "fired by retry",
                "already-settled",
                "settled as retryable again",
                "settled as failed",
                "settled as pending",
                "reclaimed as pending",
                "reclaimed as failed",
                "removed by the retention",
            ],
            About::Operators => vec!["fired by flush"],
            About::Policies => vec![
                "fired by merge",
                "fired by redrive",
                "hold answered held",
                "hold answered superseded",
                "hold answered interrupted",
                "settled as cancelled",
                "lane-not-idle",
            ],
            About::Sources => vec![
                "source answered taken",
                "source answered wait",
                "source answered hit",
                "source answered fetch",
                "source answered fetching",
                "changed by probe_faulted",
                "changed by starved",
                "breaker closed",
                "breaker open",
                "breaker half_open",
                "source enabled",
                "source disabled",
                "source removed",
                "source released",
                "lane waits for its source",
                "not-found",
                "invalid",
            ],
        });
        must
    }
}

pub async fn random_histories_of_windows_match_the_memory_store(harness: &dyn Harness) {
    histories(harness, About::Windows, 1_000_000).await;
}

pub async fn random_histories_of_failures_match_the_memory_store(harness: &dyn Harness) {
    histories(harness, About::Failures, 2_000_000).await;
}

pub async fn random_histories_of_operators_match_the_memory_store(harness: &dyn Harness) {
    histories(harness, About::Operators, 3_000_000).await;
}

pub async fn random_histories_of_policies_match_the_memory_store(harness: &dyn Harness) {
    histories(harness, About::Policies, 4_000_000).await;
}

pub async fn random_histories_of_sources_match_the_memory_store(harness: &dyn Harness) {
    histories(harness, About::Sources, 5_000_000).await;
}

async fn histories(harness: &dyn Harness, about: About, first: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("QUELL_HISTORY_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + number("QUELL_HISTORIES").unwrap_or(HISTORIES).div_ceil(3),
    };
    let mut seen = BTreeSet::new();
    let enough = seeds.end - seeds.start >= HISTORIES / 3;
    for seed in seeds {
        let world = harness.world().await;
        seen.extend(Box::pin(History::begin(&*world, about, seed).await.play()).await);
    }
    let missing: Vec<_> = about.must_be_seen().into_iter().filter(|what| !seen.contains(*what)).collect();
    assert!(!enough || missing.is_empty(), "{missing:?} never happened, so this run proves nothing about it");
}

/// Two stores that live through the same.
struct History<'a> {
    world: &'a dyn World,
    subject: Arc<dyn Store>,
    model: MemoryStore,
    model_clock: Arc<ManualClock>,
    model_now: Timestamp,
    compare: Compare,
    about: About,
    chance: Chance,
    told: Told,
    lanes: Vec<LaneKey>,
    workers: Vec<Arc<WorkerId>>,
    /// What was claimed so far, as the two stores named it.
    claims: Vec<(Batch, Batch)>,
    sent: Vec<AppendRequest>,
    made: u64,
}

/// The steps so far; shown only when a test fails.
struct Told {
    seed: u64,
    about: About,
    steps: Vec<String>,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("history about {:?} with QUELL_HISTORY_SEED={} failed after:", self.about, self.seed);
            for (number, step) in self.steps.iter().enumerate() {
                eprintln!("  {number:>3} {step}");
            }
        }
    }
}

impl<'a> History<'a> {
    async fn begin(world: &'a dyn World, about: About, seed: u64) -> Self {
        let subject = world.store();
        let start = health(&*subject).await.now;
        let model_clock = Arc::new(ManualClock::at(start));
        let worker = |name: &str, pid| Arc::new(WorkerId { name: name.into(), pid, start: "s".into() });
        History {
            world,
            subject,
            model: MemoryStore::new(model_clock.clone()),
            model_clock,
            model_now: start,
            compare: Compare::new(world.clock_runs()),
            about,
            chance: Chance::seeded(seed),
            told: Told { seed, about, steps: Vec::new() },
            lanes: vec![
                lane("chat", "a"),
                lane("chat", "b*'\n"),
                lane_of("acme", "chat", "a"),
                lane("mail", "a"),
            ],
            workers: vec![worker("w1", 1), worker("w2", 2)],
            claims: Vec::new(),
            sent: Vec::new(),
            made: 0,
        }
    }

    /// Gives back what happened at least once.
    async fn play(mut self) -> BTreeSet<String> {
        if self.about == About::Sources {
            self.follow().await;
            self.declare_sources().await;
        }
        for step in 0..STEPS {
            self.follow().await;
            match (self.about, self.chance.below(100)) {
                (_, 0..30) => self.append().await,
                (About::Sources, 44..80) => self.source_step().await,
                (_, 30..50) => self.claim().await,
                (About::Policies, 50..62) => self.settle_any().await,
                (About::Policies, 62..80) => self.policy_step().await,
                (_, 50..65) => self.settle().await,
                (About::Failures, 65..72) => self.extend().await,
                (About::Failures, 72..80) => self.sweep().await,
                (About::Operators, 65..82) => self.control().await,
                (_, 80..83) => self.restart().await,
                _ => self.advance().await,
            }
            if step % 15 == 14 {
                assert_totals(self.world).await;
            }
        }
        self.follow().await;
        self.told.steps.push("compare everything".into());
        self.compare.everything(&*self.subject, &self.model).await;
        assert_totals(self.world).await;
        assert_trail(self.world).await;
        std::mem::take(&mut self.compare.seen)
    }

    /// Sets the memory store's clock to the other one's.
    async fn follow(&mut self) {
        let now = health(&*self.subject).await.now;
        self.model_clock.advance(now.since(self.model_now));
        self.model_now = now;
    }

    fn tell(&mut self, step: String) {
        self.told.steps.push(step);
    }

    async fn append(&mut self) {
        if self.chance.percent(8) && !self.sent.is_empty() {
            let again = self.chance.pick(&self.sent).clone();
            let again = AppendRequest { repeat: true, ..again };
            self.tell(format!("repeat the append of {:?}", ids_of(&again)));
            return self.append_on_both(again).await;
        }
        let count = if self.chance.percent(30) { 1 + self.chance.below(4) } else { 1 };
        let lane = self.chance.pick(&self.lanes).clone();
        let window = self.window();
        let mut events = Vec::new();
        for _ in 0..count {
            let lane =
                if self.chance.percent(80) { lane.clone() } else { self.chance.pick(&self.lanes).clone() };
            let mut event = self.identified(event_in(lane).window(window));
            if count == 1 && self.chance.percent(25) {
                event = event.lane_events(3);
            }
            events.push(event);
        }
        let mut request = append_request(events);
        if self.about == About::Policies {
            self.wishes(&mut request);
        }
        if self.about == About::Sources {
            self.govern(&mut request);
        }
        self.tell(format!("append {:?} with {:?}", ids_of(&request), window));
        self.sent.push(request.clone());
        self.append_on_both(request).await;
    }

    fn identified(&mut self, event: EventBuilder) -> EventBuilder {
        if self.chance.percent(50) {
            self.made += 1;
            return event.made(&format!("m{}", self.made));
        }
        let id = format!("e{}", self.chance.below(12));
        let event = event.id(&id);
        match self.chance.below(20) {
            0 => event.payload(serde_json::json!("another payload")),
            1 => event.raw(&format!("{{ \"id\" :  {id:?} }}")),
            _ => event,
        }
    }

    fn window(&mut self) -> Window {
        let window = match self.chance.below(if self.about == About::Windows { 4 } else { 6 }) {
            0 => Window::fixed(secs(35)),
            1 => Window::quiet_capped(secs(25), secs(70)),
            2 => Window::quiet_capped(secs(45), secs(210)),
            _ => Window::none(),
        };
        match self.chance.below(6) {
            0 => window.max_events(2),
            1 => window.max_events(3),
            2 => window.max_bytes(30),
            _ => window,
        }
    }

    async fn append_on_both(&mut self, request: AppendRequest) {
        let (subject, model) = (self.subject.append(request.clone()).await, self.model.append(request).await);
        self.compare.appended(subject, model);
    }

    async fn claim(&mut self) {
        let mut policy = RunPolicy {
            lease: secs(*self.chance.pick(&[35, 55, 115])),
            max_attempts: *self.chance.pick(&[2, 3, 5]),
            ..policy()
        };
        if self.about == About::Policies {
            policy = self.rules(policy);
        }
        let policy = Arc::new(policy);
        let queues = match self.chance.below(6) {
            0 => ClaimQueues::Listed(vec![from_queue("chat", (*policy).clone(), 10)]),
            1 => ClaimQueues::Listed(vec![
                from_queue("mail", (*policy).clone(), 10),
                from_queue("none", (*policy).clone(), 10),
            ]),
            _ => ClaimQueues::Any(policy.clone()),
        };
        let request = ClaimRequest {
            worker: self.chance.pick(&self.workers).clone(),
            queues,
            tenant: self.chance.percent(10).then(|| tenant("acme")),
            max: 100,
            reclaim: !self.chance.percent(10),
            claim_id: None,
        };
        self.tell(format!(
            "claim {:?} tenant {:?} reclaim {}",
            request.queues, request.tenant, request.reclaim
        ));
        let (subject, model) = (self.subject.claim(request.clone()).await, self.model.claim(request).await);
        let batches = self.compare.claimed(subject, model);
        self.claims.extend(batches);
    }

    /// Mostly one of the latest claims, sometimes an old one, whose holder has long lost it.
    fn some_claim(&mut self) -> Option<(Batch, Batch)> {
        let recent = if self.chance.percent(75) { 4 } else { self.claims.len() };
        let skip = self.claims.len().saturating_sub(recent);
        let choice = &self.claims[skip..];
        (!choice.is_empty()).then(|| self.chance.pick(choice).clone())
    }

    async fn settle(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let verdict = match self.about {
            About::Failures => *self.chance.pick(&[SUCCEEDED, FAILED, RETRY, RETRY, RELEASE, RELEASE]),
            _ => *self.chance.pick(&[SUCCEEDED, SUCCEEDED, SUCCEEDED, FAILED, RETRY, RELEASE]),
        };
        let delay = secs(*self.chance.pick(&[0, 10, 50]));
        let error = (verdict != Verdict::Succeeded).then(|| format!("{verdict:?}"));
        let result =
            (verdict == Verdict::Succeeded).then(|| serde_json::json!({ "n": self.chance.below(9) }));
        let usage = BTreeMap::from([("n".to_owned(), 0.5)]);
        // By what is drawn already, so that the histories of known seeds stay what they were.
        let status = (!delay.is_zero()).then_some(if error.is_none() { 200 } else { 503 });
        let report =
            status.map(|status| Box::new(AttemptReport { status: Some(status), ..AttemptReport::default() }));
        self.tell(format!("settle {} of {} as {verdict:?} {delay:?}", subject.run_id, subject.lane));
        let request = |batch: &Batch| SettleRequest {
            delay,
            error: error.clone(),
            result: result.clone(),
            usage: usage.clone(),
            report: report.clone(),
            ..settle_request(batch, verdict)
        };
        let answers =
            (self.subject.settle(request(&subject)).await, self.model.settle(request(&model)).await);
        self.compare.settled(answers.0, answers.1);
    }

    async fn extend(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let lease = secs(*self.chance.pick(&[15, 35, 75]));
        self.tell(format!("extend {} of {} by {lease:?}", subject.run_id, subject.lane));
        let request = |batch: &Batch| ExtendRequest { run_id: batch.run_id, token: batch.token, lease };
        let answers =
            (self.subject.extend(request(&subject)).await, self.model.extend(request(&model)).await);
        self.compare.extended(answers.0, answers.1);
    }

    async fn sweep(&mut self) {
        let request = SweepRequest {
            reclaim: self.chance.percent(80),
            retention: self.chance.percent(50).then(|| secs(7_210)),
        };
        self.tell(format!("{request:?}"));
        let swept = (swept(&*self.subject, &request).await, swept(&self.model, &request).await);
        self.compare.swept(swept.0, swept.1);
    }

    async fn control(&mut self) {
        let lane = self.chance.pick(&self.lanes).clone();
        let scope = if self.chance.percent(50) { whole("chat") } else { scoped("chat", "acme") };
        let action = match self.chance.below(10) {
            0..4 => ControlAction::Flush(lane),
            4 => ControlAction::PauseLane(lane),
            5..7 => ControlAction::ResumeLane(lane),
            7 => ControlAction::PauseQueue(scope),
            _ => ControlAction::ResumeQueue(scope),
        };
        self.tell(format!("{action:?}"));
        let request = Control { actor: "ada".into(), action };
        let (subject, model) =
            (self.subject.control(request.clone()).await, self.model.control(request).await);
        assert_eq!(subject, model);
    }

    async fn advance(&mut self) {
        let by = match self.about {
            About::Failures => *self.chance.pick(&[20, 40, 60, 60, 4_000]),
            _ => *self.chance.pick(&[20, 20, 40, 60]),
        };
        self.tell(format!("advance {by} s"));
        self.world.advance(Duration::from_secs(by)).await;
    }

    async fn restart(&mut self) {
        self.tell("restart".into());
        // No handle may stay open, so this one is replaced by an empty store first.
        self.subject = Arc::new(MemoryStore::new(self.model_clock.clone()));
        self.subject = self.world.reopen().await;
    }
}

fn ids_of(request: &AppendRequest) -> Vec<String> {
    request.events.iter().map(|e| format!("{}#{}", e.lane, e.id.id())).collect()
}

/// Sweeps until nothing is left to sweep.
async fn swept(store: &dyn Store, request: &SweepRequest) -> Swept {
    let mut all = Swept::default();
    loop {
        let step = store.sweep(request.clone()).await.expect("the sweep is done");
        all.reclaimed.extend(step.reclaimed);
        all.removed_runs += step.removed_runs;
        all.removed_events += step.removed_events;
        all.removed_audit += step.removed_audit;
        if !step.more {
            return all;
        }
    }
}
