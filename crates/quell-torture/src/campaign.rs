//! A campaign: rounds of processes and faults, each on a fresh store and judged by itself.
//!
//! Rounds bound what has to be kept in memory to judge, and show again and again that everything drains. Which fault comes
//! next, to whom, and when, is drawn from the seed; what the processes make of it depends on the machine, so a seed repeats
//! the plan and not the history. What is found is kept with its logs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use quell_core::inspect::{AuditFilter, Inspect, Inspected};
use quell_core::store::Store;
use rustix::process::Signal;

use crate::chance::Chance;
use crate::child::Role;
use crate::clock::{between, now};
use crate::courses::LEASE;
use crate::crew::{Crew, Door, Synchronous, signal};
use crate::fault::Fault;
use crate::ground::{Ground, Place};
use crate::judge::{Broken, Judged, judge_drained};
use crate::proxy::Weather;
use crate::reads;
use crate::report::{Bite, Found, Report};
use crate::roles::pause;

/// Who is there. On two cores more would only wait for each other.
const CREW: [(Role, usize); 3] = [(Role::Append, 3), (Role::Work, 3), (Role::Operate, 1)];
/// The longest pause between two faults, in milliseconds: about ten in a second.
const PAUSE_MAX: u64 = 150;
/// What is left of the time after a round is part of that round if it is less than this.
const ROUND_MIN: Duration = Duration::from_secs(2);
/// Before everybody is killed at once they get time to work, in milliseconds.
const WORK: (u64, u64) = (300, 900);
/// Asleep at the same time, at the most: somebody has to take their lanes over.
const ZOMBIES_MAX: usize = 2;
/// A server, or a file under a full disk, is waited for this long when a store is opened.
const OPEN_MAX: Duration = Duration::from_secs(60);
const OPEN_PAUSE: Duration = Duration::from_millis(50);
/// The farthest that the boot clock goes ahead at once, in seconds: a day.
const AHEAD_MAX: u64 = 86_400;

/// What to do.
#[derive(Debug, Clone)]
pub struct Options {
    pub place: Place,
    /// How long processes are hurt, judging not included.
    pub length: Duration,
    /// How long one round is.
    pub round: Duration,
    pub seed: u64,
    /// What was asked for; what cannot be done here is skipped with its reason.
    pub faults: Vec<Fault>,
    /// Power cuts with `synchronous = NORMAL` at the end, if there are power cuts at all.
    pub bites: u64,
}

/// Refuses a store that somebody uses. Whoever opened it has made its tables, if they were not there.
///
/// # Errors
///
/// A text for people when there is something in it.
pub async fn refuse_unless_empty(store: &dyn Store) -> Result<(), String> {
    let unread = |error| format!("it cannot be read: {error}");
    let stats = reads::stats(store).await.map_err(unread)?;
    let accepted: u64 = stats.iter().map(|queue| queue.totals.accepted).sum();
    if !stats.is_empty() {
        return Err(format!("it has {} queues and has accepted {accepted} events", stats.len()));
    }
    let schedules = store.inspect(Inspect::Schedules).await.map_err(unread)?;
    if matches!(&schedules, Inspected::Schedules(rows) if !rows.is_empty()) {
        return Err("it has schedules".to_owned());
    }
    let audit = AuditFilter { limit: 1, ..AuditFilter::default() };
    match reads::audit_page(store, audit).await.map_err(unread)?.items.is_empty() {
        true => Ok(()),
        false => Err("it has an audit trail".to_owned()),
    }
}

/// Runs rounds until the time is over, something is found, or `stop` ends it; `say` hears what goes on.
///
/// # Errors
///
/// When torture itself cannot work here. What it finds is part of the report.
pub async fn run(
    options: &Options,
    door: &dyn Door,
    stop: impl Future<Output = ()>,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, Broken> {
    let (faults, skipped) = options.place.possible(&options.faults);
    if faults.is_empty() {
        return Err(Broken::Tool("none of these faults can be done here".to_owned()));
    }
    for (fault, reason) in &skipped {
        say(&format!("skipped: {} ({reason})", fault.name()));
    }
    let ground = Ground::prepare(&options.place, &faults).await?;
    let mut campaign = Campaign {
        door,
        ground,
        chance: Chance::seeded(options.seed),
        report: Report::new(options.place.kind(), options.seed, skipped),
        faults,
        heal_at: None,
    };
    let mut stop = Box::pin(stop);
    let begun = now();
    let mut hurt = Duration::ZERO;
    let mut round = 0;
    while hurt < options.length {
        round += 1;
        let left = options.length - hurt;
        let length = if left < options.round + ROUND_MIN { left } else { options.round };
        hurt += length;
        tokio::select! {
            judged = campaign.round(round, length) => match judged {
                Ok(judged) => {
                    campaign.report.add(&judged);
                    say(&campaign.line(round, &judged));
                }
                Err(broken) if broken.is_finding() => {
                    campaign.found(round, &broken);
                    break;
                }
                Err(broken) => return Err(broken),
            },
            () = &mut stop => break,
        }
        campaign.ground.clear()?;
    }
    if campaign.report.found.is_none() && campaign.faults.contains(&Fault::PowerCut) && options.bites > 0 {
        tokio::select! {
            bite = campaign.bite(options.bites) => {
                let bite = bite?;
                say(&bite.sentence());
                campaign.report.bite = Some(bite);
            }
            () = &mut stop => {}
        }
    }
    campaign.report.seconds = (now() - begun).as_secs();
    Ok(campaign.report)
}

struct Campaign<'a> {
    door: &'a dyn Door,
    ground: Ground,
    chance: Chance,
    report: Report,
    faults: Vec<Fault>,
    /// When the weather or the disk gets well again.
    heal_at: Option<Duration>,
}

impl<'a> Campaign<'a> {
    fn crew(&self, round: u64, logs: &Path, sync: Synchronous) -> Crew<'a> {
        let hurts = |fault: &Fault| matches!(fault, Fault::FullDisk | Fault::Fsync);
        let supervised = self.faults.iter().any(hurts);
        Crew::new(self.door, self.ground.store_of_children(round), logs, sync, supervised)
    }

    fn line(&self, round: u64, judged: &Judged) -> String {
        let done: Vec<String> =
            self.report.faults.iter().map(|(name, times)| format!("{times} {name}")).collect();
        format!(
            "round {round}: {} events acknowledged, {} runs, no violation; so far {}",
            judged.acknowledged,
            judged.runs,
            done.join(", ")
        )
    }

    fn found(&mut self, round: u64, broken: &Broken) {
        self.report.violations += 1;
        let kept = self.ground.keep();
        self.report.found = Some(Found { round, what: broken.to_string(), kept });
    }

    async fn open(&self, url: &str) -> Result<Arc<dyn Store>, Broken> {
        let limit = now() + OPEN_MAX;
        loop {
            match self.door.open(url, Synchronous::Full).await {
                Ok(store) => return Ok(store),
                Err(error) if error.is_temporary() && now() < limit => pause(OPEN_PAUSE).await,
                Err(problem) => return Err(Broken::Store { doing: "open", problem }),
            }
        }
    }

    /// One round: a fresh store, a crew, faults, the drain, the verdict.
    async fn round(&mut self, round: u64, length: Duration) -> Result<Judged, Broken> {
        let logs = self.fresh_store(round).await?;
        let mut crew = self.crew(round, &logs, Synchronous::Full);
        for (role, count) in CREW {
            for _ in 0..count {
                crew.start(role)?;
            }
        }
        let until = now() + length;
        while now() < until {
            pause(Duration::from_millis(self.chance.below(PAUSE_MAX))).await;
            self.heal(false);
            let woken = crew.wake(false)?;
            self.report.count("zombie", woken);
            self.check(&mut crew)?;
            let fault = self.draw();
            self.inflict(fault, &mut crew).await?;
        }
        self.heal(true);
        let woken = crew.wake(true)?;
        self.report.count("zombie", woken);
        // Those that were just started or woken do a last piece of work.
        pause(Duration::from_millis(WORK.0)).await;
        self.check(&mut crew)?;
        crew.kill_all()?;
        self.verdict(round, &mut crew, &logs).await
    }

    async fn at_work(&mut self, crew: &mut Crew<'_>) -> Result<(), Broken> {
        let restarted = crew.at_work().await?;
        self.report.count("supervised restart", restarted);
        Ok(())
    }

    fn check(&mut self, crew: &mut Crew<'_>) -> Result<(), Broken> {
        let restarted = crew.check()?;
        self.report.count("supervised restart", restarted);
        Ok(())
    }

    /// Opens the store of a round, refuses one with data, and makes the folder of its logs.
    async fn fresh_store(&mut self, round: u64) -> Result<std::path::PathBuf, Broken> {
        let url = self.ground.store(round);
        let store = self.open(&url).await?;
        refuse_unless_empty(&*store)
            .await
            .map_err(|has| Broken::Tool(format!("the store of round {round} is not empty: {has}")))?;
        drop(store);
        let logs = self.ground.folder().join("logs");
        let made = std::fs::remove_dir_all(&logs).or(Ok(())).and_then(|()| std::fs::create_dir_all(&logs));
        made.map_err(|error| Broken::Tool(format!("{}: {error}", logs.display())))?;
        Ok(logs)
    }

    async fn verdict(&mut self, round: u64, crew: &mut Crew<'_>, logs: &Path) -> Result<Judged, Broken> {
        crew.drain().await?;
        let store = self.open(&self.ground.store(round)).await?;
        judge_drained(logs, Vec::new(), &store).await
    }

    fn draw(&mut self) -> Fault {
        let sum: u64 = self.faults.iter().map(|fault| fault.weight()).sum();
        let mut drawn = self.chance.below(sum);
        for fault in &self.faults {
            if drawn < fault.weight() {
                return *fault;
            }
            drawn -= fault.weight();
        }
        self.faults[0]
    }

    async fn inflict(&mut self, fault: Fault, crew: &mut Crew<'_>) -> Result<(), Broken> {
        match fault {
            Fault::Kill => {
                if let Some(victim) = crew.draw(&mut self.chance, None) {
                    crew.kill(victim)?;
                    self.report.count("kill", 1);
                }
            }
            Fault::Zombie => self.stop_a_worker(crew)?,
            Fault::Restart => {
                // A second or two, in which everybody else goes on: this thread is not one of theirs.
                tokio::task::block_in_place(|| self.ground.restart())?;
                self.report.count("restart", 1);
            }
            Fault::Tcp => self.bad_weather(),
            Fault::FullDisk => {
                if self.heal_at.is_none()
                    && let Some(disk) = &mut self.ground.disk
                {
                    disk.fill().map_err(Broken::Tool)?;
                    self.heal_at = Some(now() + between(&mut self.chance, 200, 1_000));
                    self.report.count("full-disk", 1);
                }
            }
            Fault::Fsync => self.failing_flushes(crew).await?,
            Fault::PowerCut => self.power_cut(crew).await?,
            Fault::Clock => {
                self.at_work(crew).await?;
                pause(between(&mut self.chance, WORK.0, WORK.1)).await;
                let roles = crew.kill_all()?;
                crew.ahead_by(Duration::from_secs(1 + self.chance.below(AHEAD_MAX)));
                roles.into_iter().try_for_each(|role| crew.start(role))?;
                self.report.count("clock", 1);
            }
        }
        Ok(())
    }

    fn stop_a_worker(&mut self, crew: &mut Crew<'_>) -> Result<(), Broken> {
        if crew.stopped() >= ZOMBIES_MAX {
            return Ok(());
        }
        if let Some(victim) = crew.draw(&mut self.chance, Some(Role::Work)) {
            crew.stop(victim, now() + LEASE + between(&mut self.chance, 200, 1_500))?;
        }
        Ok(())
    }

    fn bad_weather(&mut self) {
        let Some(proxy) = &self.ground.proxy else { return };
        if self.heal_at.is_some() {
            return;
        }
        let (weather, name) = match self.chance.below(4) {
            0 => {
                proxy.cut();
                return self.report.count("tcp cut", 1);
            }
            1 => (Weather::Slow(between(&mut self.chance, 2, 40)), "tcp delay"),
            2 => (Weather::Silent, "tcp silence"),
            _ => (Weather::Deaf, "tcp answer lost"),
        };
        proxy.becomes(weather);
        self.heal_at = Some(now() + between(&mut self.chance, 100, 1_000));
        self.report.count(name, 1);
    }

    /// Ends bad weather and a full disk when it is time.
    fn heal(&mut self, at_once: bool) {
        if self.heal_at.take_if(|at| at_once || *at <= now()).is_some() {
            if let Some(proxy) = &self.ground.proxy {
                proxy.becomes(Weather::Fair);
            }
            if let Some(disk) = &mut self.ground.disk {
                disk.free();
            }
        }
    }

    /// Every flush of one process answers EIO for a while. Its store stops by itself then, and whoever supervises it starts
    /// it anew.
    async fn failing_flushes(&mut self, crew: &mut Crew<'_>) -> Result<(), Broken> {
        let Some(victim) = crew.draw(&mut self.chance, None) else { return Ok(()) };
        let told = self.ground.folder().join("strace.txt");
        let traced = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO"])
            .arg("-o")
            .arg(&told)
            .args(["-p", &crew.pid(victim).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut traced = traced.map_err(|error| Broken::Tool(format!("strace: {error}")))?;
        pause(between(&mut self.chance, 200, 600)).await;
        // It lets the process go and ends.
        let _ = signal(&traced, Signal::TERM);
        let _ = traced.wait();
        let failed = std::fs::read_to_string(&told).unwrap_or_default().matches("(INJECTED)").count();
        if failed > 0 {
            self.report.count("fsync", 1);
            crew.kill(victim)?;
        }
        Ok(())
    }

    async fn power_cut(&mut self, crew: &mut Crew<'_>) -> Result<(), Broken> {
        self.heal(true);
        crew.wake(true)?;
        self.at_work(crew).await?;
        pause(between(&mut self.chance, WORK.0, WORK.1)).await;
        self.check(crew)?;
        let roles = self.cut(crew).await?;
        roles.into_iter().try_for_each(|role| crew.start(role))?;
        self.report.count("power-cut", 1);
        Ok(())
    }

    /// The disk stops, everybody dies, the disk comes back. What filled it is still there and goes now.
    async fn cut(&mut self, crew: &mut Crew<'_>) -> Result<Vec<Role>, Broken> {
        let Some(disk) = &mut self.ground.disk else {
            return Err(Broken::Tool("there is no disk whose power could be cut".to_owned()));
        };
        let shutter = disk.shutter().map_err(Broken::Tool)?;
        // Nobody may hear anything after the cut. A file system that was stopped answers for a while yet, even that a flush
        // was fine; whoever is inside such a call when it is stopped never gets to say so.
        crew.freeze()?;
        shutter.fall().map_err(Broken::Tool)?;
        let roles = crew.kill_all()?;
        disk.back().await.map_err(Broken::Tool)?;
        self.heal(true);
        Ok(roles)
    }

    /// Power cuts with `synchronous = NORMAL`, each on a fresh disk and judged by itself: some must be found out.
    async fn bite(&mut self, cuts: u64) -> Result<Bite, Broken> {
        let mut bite = Bite { cuts: 0, found: 0 };
        for _ in 0..cuts {
            self.ground.new_disk()?;
            let logs = self.fresh_store(1).await?;
            let mut crew = self.crew(1, &logs, Synchronous::Normal);
            for role in [Role::Append, Role::Work] {
                crew.start(role)?;
            }
            self.at_work(&mut crew).await?;
            pause(between(&mut self.chance, WORK.0, WORK.1)).await;
            self.check(&mut crew)?;
            self.cut(&mut crew).await?;
            bite.cuts += 1;
            match self.verdict(1, &mut crew, &logs).await {
                Ok(_) => {}
                Err(broken) if broken.is_finding() => bite.found += 1,
                Err(broken) => return Err(broken),
            }
        }
        Ok(bite)
    }
}
