//! Sources: outside parties with limits of their own, and everything that is decided about one, as pure functions.
//!
//! A queue or an event names a source. A lane whose next batch belongs to one is handed out only when the source lets it
//! go: it is enabled, its breaker is closed (or this lane is the probe of a half-open one), and its bucket has a token.
//! Until then the lane simply is not due: nobody waits, nothing is leased, no attempt is counted.
//!
//! Stores load a [`Source`], call one function, and write it back in the transaction that claims or settles the lane, so
//! a token is taken if and only if the lane is handed out. Nothing here reads a clock or does I/O. Time never goes back
//! for a source: a server whose clock is behind sees the time of the one that was here before it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::batch::RunId;
use crate::clock::Timestamp;
use crate::event::{Invalid, SourceName, Tenant};
use crate::lane::Paused;
use crate::limits;
use crate::mutants::mutant;
use crate::outcome::VerdictKind;

/// One token, in the units of the bucket: sixty thousandths, so that a millisecond adds exactly `per_minute` of them.
const TOKEN: u64 = 60_000;

/// The number of a source, from the store-wide sequence: what events and runs carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u64);

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a declaration says of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRules {
    /// Requests per minute in the long run; nothing means no limit: breaker and cache only.
    pub per_minute: Option<u32>,
    /// Requests at once after a rest.
    pub burst: u32,
    /// Faults in a row that open the breaker.
    pub failures: u32,
    /// How long an open breaker lets nobody go.
    pub cooldown: Duration,
    /// How long an answer is kept; nothing means that none is.
    pub cache_ttl: Option<Duration>,
    /// One for all tenants; otherwise each tenant has its own.
    pub shared: bool,
}

impl Default for SourceRules {
    fn default() -> Self {
        SourceRules {
            per_minute: None,
            burst: 1,
            failures: limits::SOURCE_FAILURES_DEFAULT,
            cooldown: limits::SOURCE_COOLDOWN_DEFAULT,
            cache_ttl: Some(limits::CACHE_TTL_DEFAULT),
            shared: false,
        }
    }
}

impl SourceRules {
    /// Refuses limits that cannot be kept, and says what is allowed.
    pub fn check(&self) -> Result<(), Invalid> {
        let refuse = |problem: String| Err(Invalid { what: "source", problem });
        let within = |value: Duration, most: Duration| !value.is_zero() && value <= most;
        if self.per_minute == Some(0) {
            return refuse(
                "allows 0 requests per minute, so nothing would ever go: disable the source instead, or leave the limit \
                 out for none"
                    .into(),
            );
        }
        if let Some(rate) = self.per_minute.filter(|rate| *rate > limits::SOURCE_PER_MINUTE_MAX) {
            let max = limits::SOURCE_PER_MINUTE_MAX;
            return refuse(format!(
                "allows {rate} requests per minute; at most {max} can be counted: leave the limit out for none"
            ));
        }
        if self.burst == 0 || self.burst > limits::SOURCE_BURST_MAX {
            let (burst, max) = (self.burst, limits::SOURCE_BURST_MAX);
            return refuse(format!("has a burst of {burst}; 1 to {max} are possible"));
        }
        if self.failures == 0 || self.failures > limits::SOURCE_FAILURES_MAX {
            let (failures, max) = (self.failures, limits::SOURCE_FAILURES_MAX);
            return refuse(format!("opens its breaker after {failures} failures; 1 to {max} are possible"));
        }
        if !within(self.cooldown, limits::SOURCE_COOLDOWN_MAX) {
            return refuse("has a cooldown that is not between 1 millisecond and 24 hours".into());
        }
        if self.cache_ttl.is_some_and(|ttl| !within(ttl, limits::CACHE_TTL_MAX)) {
            return refuse(
                "keeps answers for a time that is not between 1 millisecond and 30 days; disable the cache to keep none"
                    .into(),
            );
        }
        Ok(())
    }

    fn capacity(&self) -> u64 {
        u64::from(self.burst) * TOKEN
    }
}

/// A declaration: what `[sources.x]` of the configuration says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// By which queues and events name it.
    pub name: SourceName,
    /// Its limits.
    pub rules: SourceRules,
}

/// Whether a source lets anybody go at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Standing {
    /// Keys that are due may go, within its limits.
    Enabled,
    /// By an operator's hand: its lanes are held.
    Disabled,
    /// Not declared any more: its lanes are held until it is declared again or released.
    Removed,
    /// Not declared any more, and an operator let its lanes go ungoverned.
    Released,
}

/// A source of one tenant (or of all, when it is shared), with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its number in the store.
    pub id: SourceId,
    /// Empty for a shared one, and for those who have no tenant.
    pub tenant: Tenant,
    /// By which queues and events name it.
    pub name: SourceName,
    /// Its limits.
    pub rules: SourceRules,
    /// Whether it may be asked at all.
    pub standing: Standing,
    /// The bucket in sixty-thousandths of a token, as it was at `at`.
    pub level: u64,
    /// When the bucket was counted last.
    pub at: Timestamp,
    /// Tokens taken by claims whose runs have not ended, the oldest first, with what of each can still be given back.
    /// Together with the level they never exceed the burst: so a token that comes back late never adds to a bucket that
    /// has been filled meanwhile, and the limit holds for every window.
    pub unspent: Vec<Unspent>,
    /// The source asked for silence until then.
    pub not_before: Option<Timestamp>,
    /// Faults in a row.
    pub streak: u32,
    /// When it last did what was asked.
    pub last_success_at: Option<Timestamp>,
    /// When it last failed.
    pub last_failure_at: Option<Timestamp>,
    /// Set while the breaker is not closed. Before this moment it is open, from then on half-open.
    pub paused_until: Option<Timestamp>,
    /// Who may try a half-open one.
    pub probe: Option<Probe>,
    /// Who changed its standing last, and when.
    pub hand: Option<Paused>,
}

/// What is left to give back of a token that a claim took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unspent {
    /// The claim's own token.
    pub token: u64,
    /// In sixty-thousandths of a token.
    pub left: u64,
}

/// The right to try a half-open breaker: it ends with the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The run that tries it out.
    pub run: RunId,
    /// The token under which it does.
    pub token: u64,
    /// When the trial is given up.
    pub until: Timestamp,
}

/// What keeps a lane from being handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Because {
    /// The bucket is empty.
    RateLimited,
    /// The source asked for silence.
    RetryAfter,
    /// Too many faults in a row.
    BreakerOpen,
    /// Somebody else is trying whether it works again.
    Probing,
    /// Somebody has disabled it.
    Disabled,
    /// Nobody declares it any more.
    Removed,
}

impl Because {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Because::RateLimited => "rate_limited",
            Because::RetryAfter => "retry_after",
            Because::BreakerOpen => "breaker_open",
            Because::Probing => "probing",
            Because::Disabled => "disabled",
            Because::Removed => "removed",
        }
    }

    /// For people, after the name of the source.
    pub fn phrase(self) -> &'static str {
        match self {
            Because::RateLimited => "is rate limited",
            Because::RetryAfter => "asked for silence",
            Because::BreakerOpen => "has its breaker open",
            Because::Probing => "is being probed",
            Because::Disabled => "is disabled",
            Because::Removed => "is not declared any more",
        }
    }
}

/// Whether lanes of a source can be handed out now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are called what they are; each variant says the rest")]
pub enum Readiness {
    /// So many of them; `probe` when the one that goes tries a half-open breaker.
    Go { most: u64, probe: bool },
    /// Not before this moment.
    Wait(Timestamp, Because),
    /// Not before somebody changes that.
    Held(Because),
}

impl Readiness {
    /// What a lane without a source meets.
    pub const FREE: Readiness = Readiness::Go { most: u64::MAX, probe: false };

    /// When a lane that is due at `due` can be handed out as far as this is known; nothing when it is held.
    pub fn not_before(self, due: Timestamp) -> Option<Timestamp> {
        match self {
            Readiness::Go { .. } => Some(due),
            Readiness::Wait(until, _) => Some(due.max(until)),
            Readiness::Held(_) => None,
        }
    }

    /// Whether the key may go now.
    pub fn is_go(self) -> bool {
        matches!(self, Readiness::Go { .. })
    }

    /// How many lanes can be handed out now.
    pub fn most(self) -> u64 {
        match self {
            Readiness::Go { most, .. } => most,
            Readiness::Wait(..) | Readiness::Held(_) => 0,
        }
    }
}

/// The breaker as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum Breaker {
    /// It is asked as usual.
    Closed,
    /// Nobody is let go until the cooldown is over.
    Open,
    /// One key may go and find out.
    HalfOpen,
}

impl Breaker {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Breaker::Closed => "closed",
            Breaker::Open => "open",
            Breaker::HalfOpen => "half_open",
        }
    }
}

/// How a request to a source went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// No answer in time.
    TimeOut,
    /// No connection, or a lost one.
    Connection,
    /// It was asked too often: 429.
    TooManyRequests,
    /// It is broken: 5xx.
    ServerError,
    /// Something else that the handler holds against the source.
    Other,
}

/// A request that failed by the source's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFault {
    /// What was the matter.
    pub kind: FaultKind,
    /// How long the source wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl SourceFault {
    /// A fault that says nothing about when to come back.
    pub fn new(kind: FaultKind) -> Self {
        SourceFault { kind, retry_after: None }
    }

    /// It asked not to be asked for this long.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The class of an HTTP status: 429 and 5xx are the source's fault, nothing else is.
    pub fn of_status(status: u16) -> Option<Self> {
        match status {
            429 => Some(SourceFault::new(FaultKind::TooManyRequests)),
            500..=599 => Some(SourceFault::new(FaultKind::ServerError)),
            _ => None,
        }
    }
}

/// What one request says of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceVerdict {
    /// It answered, whatever the answer.
    Fine,
    /// It failed.
    Fault(SourceFault),
}

/// What the end of a run says of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SourceReport {
    /// The request was answered. Said of a run that succeeded, is retried or failed it is a good verdict; of one that was
    /// handed back or gave way it is none, because nobody knows how far it came.
    #[default]
    Fine,
    /// The request failed by the source's fault.
    Fault(SourceFault),
    /// No request was made: the token goes back.
    Unused,
    /// Every request has been reported by itself.
    Reported,
    /// Handed back because no further token came. Everything else has been reported by itself. As long as the source has
    /// none, the attempt is refunded beyond the bound of other hand-backs: each costs a token, so it is no busy loop.
    Starved,
}

impl Source {
    /// A new one has a full bucket and a closed breaker.
    pub fn new(id: SourceId, tenant: Tenant, declaration: &Declaration, now: Timestamp) -> Self {
        let Declaration { name, rules } = declaration.clone();
        Source {
            id,
            tenant,
            name,
            rules,
            standing: Standing::Enabled,
            level: rules.capacity(),
            at: now,
            unspent: Vec::new(),
            not_before: None,
            streak: 0,
            last_success_at: None,
            last_failure_at: None,
            paused_until: None,
            probe: None,
            hand: None,
        }
    }

    /// The one that the first event of a tenant makes. What nobody declares (any more) keeps its events, and holds them.
    pub fn first(
        id: SourceId,
        tenant: Tenant,
        name: SourceName,
        declared: Option<SourceRules>,
        now: Timestamp,
    ) -> Self {
        let standing = if declared.is_some() { Standing::Enabled } else { Standing::Removed };
        let declaration = Declaration { name, rules: declared.unwrap_or_default() };
        Source { standing, ..Source::new(id, tenant, &declaration, now) }
    }

    /// Whose source governs the events of a tenant. `remembered` are the rules of the source of nobody in particular: one
    /// that was shared stays so while it is not declared, else what enters meanwhile would have a bucket and a breaker of
    /// its own when the source is declared again.
    pub fn owner(tenant: &Tenant, declared: Option<SourceRules>, remembered: Option<SourceRules>) -> Tenant {
        let shared = declared.or(remembered).is_some_and(|rules| rules.shared);
        if shared { Tenant::none() } else { tenant.clone() }
    }

    /// The level at this moment, and the moment by the source's own time.
    fn filled(&self, now: Timestamp) -> (u64, Timestamp) {
        let now = now.max(self.at);
        let rate = u64::from(self.rules.per_minute.unwrap_or(0));
        let passed = u64::try_from(now.as_millis().saturating_sub(self.at.as_millis())).unwrap_or(0);
        let level = self.level.saturating_add(passed.saturating_mul(rate)).min(self.rules.capacity());
        (level, now)
    }

    fn refill(&mut self, now: Timestamp) -> Timestamp {
        (self.level, self.at) = self.filled(now);
        // What came in since takes the place of what might have come back: the oldest first.
        let mut over = (self.level + self.unspent.iter().map(|u| u.left).sum::<u64>())
            .saturating_sub(self.rules.capacity());
        self.unspent.retain_mut(|unspent| {
            let lost = over.min(unspent.left);
            over -= lost;
            unspent.left -= lost;
            unspent.left > 0
        });
        self.at
    }

    /// Whole tokens in the bucket; nothing when there is no limit.
    pub fn tokens(&self, now: Timestamp) -> Option<u64> {
        self.rules.per_minute.map(|_| self.filled(now).0 / TOKEN)
    }

    /// When the bucket has its next whole token: now, when it has one.
    fn token_at(&self, now: Timestamp) -> Timestamp {
        let (level, now) = self.filled(now);
        let Some(rate) = self.rules.per_minute else { return now };
        let missing = TOKEN.saturating_sub(level).div_ceil(u64::from(rate.max(1)));
        now.after(Duration::from_millis(missing))
    }

    /// What the breaker is at this moment.
    pub fn breaker(&self, now: Timestamp) -> Breaker {
        match self.paused_until {
            None => Breaker::Closed,
            Some(until) if now.max(self.at) < until => Breaker::Open,
            Some(_) => Breaker::HalfOpen,
        }
    }

    /// Whether its lanes can be handed out now.
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        let now = now.max(self.at);
        match self.standing {
            Standing::Enabled => {}
            Standing::Disabled => return Readiness::Held(Because::Disabled),
            Standing::Removed => return Readiness::Held(Because::Removed),
            Standing::Released => return Readiness::FREE,
        }
        let probe = match (self.paused_until, self.probe) {
            (Some(until), _) if now < until => return Readiness::Wait(until, Because::BreakerOpen),
            (Some(_), Some(probe)) if now < probe.until => {
                return Readiness::Wait(probe.until, Because::Probing);
            }
            (paused, _) => paused.is_some(),
        };
        match self.request_at(now) {
            Some((until, because)) => Readiness::Wait(until, because),
            None if probe => Readiness::Go { most: 1, probe },
            None => Readiness::Go { most: self.tokens(now).unwrap_or(u64::MAX), probe },
        }
    }

    /// From when on its lanes can go, if that is earlier than it was before this change: then whoever sleeps has to know.
    pub fn goes_earlier(&self, was: Option<&Source>, now: Timestamp) -> Option<Timestamp> {
        let not_before = |source: &Source| source.readiness(now).not_before(now);
        let before = was.and_then(not_before);
        not_before(self).filter(|at| before.is_none_or(|before| *at < before))
    }

    /// What a request waits for, the breaker aside.
    fn request_at(&self, now: Timestamp) -> Option<(Timestamp, Because)> {
        if let Some(until) = self.not_before.filter(|until| *until > now) {
            return Some((until, Because::RetryAfter));
        }
        let token = self.token_at(now);
        (token > now).then_some((token, Because::RateLimited))
    }

    /// A lane is handed out: its claim takes one token, and on a half-open breaker it is the probe as long as its lease
    /// lasts. Only after [`Source::readiness`] said so.
    pub fn take(&mut self, now: Timestamp, run: RunId, token: u64, lease_until: Timestamp) {
        let now = self.refill(now);
        if self.standing == Standing::Released {
            return;
        }
        if self.rules.per_minute.is_some() {
            debug_assert!(self.level >= TOKEN, "a token is only taken when there is one");
            self.level = self.level.saturating_sub(if mutant("source_token_is_free") { 0 } else { TOKEN });
            self.unspent.push(Unspent { token, left: TOKEN });
            if self.unspent.len() > limits::SOURCE_UNSPENT_MAX {
                self.unspent.remove(0);
            }
        }
        if self.paused_until.is_some_and(|until| now >= until) && !mutant("everybody_is_a_probe") {
            self.probe = Some(Probe { run, token, until: lease_until });
        }
    }

    /// A holder wants to make one more request: it gets a token, or hears when to ask again. Whoever holds a run goes on
    /// when the source is disabled or removed meanwhile, as with every pause; an open breaker stops all but the probe.
    pub fn take_more(&mut self, now: Timestamp, run: RunId, token: u64) -> Readiness {
        let now = self.refill(now);
        if self.standing == Standing::Released {
            return Readiness::FREE;
        }
        if let Some(paused) = self.paused_until.filter(|_| !self.is_probe(run, token)) {
            let probing = self.probe.map(|probe| probe.until).filter(|until| now >= paused && *until > now);
            return match probing {
                Some(until) => Readiness::Wait(until, Because::Probing),
                // Half-open and free: the next claim is the probe, not somebody who began before.
                None => Readiness::Wait(paused.max(now), Because::BreakerOpen),
            };
        }
        if let Some((until, because)) = self.request_at(now) {
            return Readiness::Wait(until, because);
        }
        if self.rules.per_minute.is_some() {
            self.level -= TOKEN;
        }
        Readiness::Go { most: 1, probe: self.is_probe(run, token) }
    }

    /// A holder whose run another source governs, or none, wants to make a request here. No claim has asked for it, so it
    /// meets what a claim meets: a disabled source lets it wait, and a half-open breaker makes it the probe. That right
    /// ends with its report, or when the lease that it has now would have ended.
    pub fn take_beside(
        &mut self,
        now: Timestamp,
        run: RunId,
        token: u64,
        lease_until: Timestamp,
    ) -> Readiness {
        let now = self.refill(now);
        if self.is_probe(run, token) {
            return self.take_more(now, run, token);
        }
        match self.readiness(now) {
            Readiness::Held(because) => Readiness::Wait(now.after(limits::SOURCE_HELD_WAIT), because),
            // The right would end before it begins, and the next one would have it, too.
            Readiness::Go { probe: true, .. } if lease_until <= now => {
                Readiness::Wait(now, Because::BreakerOpen)
            }
            Readiness::Go { probe, .. } => {
                if self.rules.per_minute.is_some() && self.standing != Standing::Released {
                    self.level -= TOKEN;
                }
                if probe {
                    self.probe = Some(Probe { run, token, until: lease_until });
                }
                Readiness::Go { most: 1, probe }
            }
            wait @ Readiness::Wait(..) => wait,
        }
    }

    /// The claim's token was not used and goes back, as far as the bucket has not been filled since.
    pub fn give_back(&mut self, now: Timestamp, token: u64) {
        self.refill(now);
        if let Some(place) = self.unspent.iter().position(|u| u.token == token) {
            self.level += self.unspent.remove(place).left;
        }
    }

    /// Whether this claim has the right to probe.
    pub fn is_probe(&self, run: RunId, token: u64) -> bool {
        self.probe.is_some_and(|probe| probe.run == run && probe.token == token)
    }

    /// A request was answered, or not. Only the probe's verdict moves a breaker that is not closed.
    pub fn report(&mut self, now: Timestamp, run: RunId, token: u64, verdict: SourceVerdict) {
        let now = self.refill(now);
        let closed = self.paused_until.is_none();
        let counts = closed || self.is_probe(run, token);
        match verdict {
            SourceVerdict::Fine => {
                self.last_success_at = Some(now);
                if counts {
                    self.close();
                }
            }
            SourceVerdict::Fault(fault) => {
                self.last_failure_at = Some(now);
                if let Some(after) = fault.retry_after {
                    let until = now.after(after.min(limits::SOURCE_RETRY_AFTER_MAX));
                    self.not_before = self.not_before.max(Some(until));
                }
                if counts {
                    self.streak = self.streak.saturating_add(1);
                    if !closed || self.streak >= self.rules.failures {
                        self.paused_until = Some(now.after(self.rules.cooldown));
                        self.probe = None;
                    }
                }
            }
        }
    }

    fn close(&mut self) {
        self.streak = 0;
        self.paused_until = None;
        self.probe = None;
    }

    /// The probe's lease was extended.
    pub fn probe_extended(&mut self, run: RunId, token: u64, lease_until: Timestamp) {
        if let Some(probe) = self.probe.as_mut().filter(|p| p.run == run && p.token == token) {
            probe.until = probe.until.max(lease_until);
        }
    }

    /// The attempt is over without a verdict: the right to probe is free again. Nothing when it was another's. Without
    /// this the right ends by itself, with the lease.
    pub fn probe_lost(&mut self, run: RunId, token: u64) {
        if self.is_probe(run, token) {
            self.probe = None;
        }
    }

    /// Whether the attempt that ends with this report is refunded because of the source: asked before
    /// [`Source::settled`]. `probe` is the run's own word: it was handed out to try a half-open breaker.
    pub fn refunds(&self, now: Timestamp, run: RunId, token: u64, probe: bool, report: SourceReport) -> bool {
        match report {
            SourceReport::Fault(_) => probe,
            // Its fault was reported before, which took the right away; without any report it would still have it.
            SourceReport::Reported => probe && !self.is_probe(run, token),
            SourceReport::Starved => {
                let now = now.max(self.at);
                let stopped = self.paused_until.is_some() && !self.is_probe(run, token);
                (probe && !self.is_probe(run, token)) || stopped || self.request_at(now).is_some()
            }
            SourceReport::Fine | SourceReport::Unused => false,
        }
    }

    /// An attempt is over, and its holder said this of the source.
    pub fn settled(
        &mut self,
        now: Timestamp,
        run: RunId,
        token: u64,
        verdict: VerdictKind,
        report: SourceReport,
    ) {
        match report {
            SourceReport::Fine => {
                let told =
                    [VerdictKind::Succeeded, VerdictKind::Retry, VerdictKind::Failed].contains(&verdict);
                if told {
                    self.report(now, run, token, SourceVerdict::Fine);
                }
            }
            SourceReport::Fault(fault) => self.report(now, run, token, SourceVerdict::Fault(fault)),
            SourceReport::Unused => self.give_back(now, token),
            SourceReport::Reported | SourceReport::Starved => {}
        }
        self.refill(now);
        self.unspent.retain(|unspent| unspent.token != token);
        self.probe_lost(run, token);
    }

    /// The declaration says this from now on. A changed rate concerns the future only; one that was not declared begins
    /// anew. False when nothing changed.
    pub fn put(&mut self, now: Timestamp, rules: SourceRules) -> bool {
        let declared = matches!(self.standing, Standing::Enabled | Standing::Disabled);
        if declared && self.rules == rules {
            return false;
        }
        self.refill(now);
        let began = !declared || self.rules.per_minute.is_none();
        self.rules = rules;
        if began {
            self.level = rules.capacity();
            self.unspent.clear();
        }
        if !declared {
            self.standing = Standing::Enabled;
            self.close();
            self.not_before = None;
        }
        self.refill(now);
        true
    }

    /// The declaration is gone. False when it was gone before.
    pub fn remove(&mut self, now: Timestamp, by: &str) -> bool {
        self.stand(now, by, Standing::Removed, &[Standing::Enabled, Standing::Disabled])
    }

    /// Lets its keys go again. False when it was enabled.
    pub fn enable(&mut self, now: Timestamp, by: &str) -> bool {
        self.stand(now, by, Standing::Enabled, &[Standing::Disabled])
    }

    /// Holds its keys. False when it was disabled.
    pub fn disable(&mut self, now: Timestamp, by: &str) -> bool {
        self.stand(now, by, Standing::Disabled, &[Standing::Enabled])
    }

    /// Lets the lanes of one that is not declared any more go ungoverned.
    pub fn release(&mut self, now: Timestamp, by: &str) -> bool {
        self.stand(now, by, Standing::Released, &[Standing::Removed])
    }

    fn stand(&mut self, now: Timestamp, by: &str, to: Standing, from: &[Standing]) -> bool {
        let moves = from.contains(&self.standing);
        if moves {
            self.standing = to;
            self.hand = Some(Paused { at: now.max(self.at), by: by.to_owned() });
        }
        moves
    }

    /// By an operator's hand: breaker closed, bucket full, no silence. The store empties its cache.
    pub fn reset(&mut self, now: Timestamp, by: &str) {
        self.at = self.at.max(now);
        self.level = self.rules.capacity();
        self.unspent.clear();
        self.not_before = None;
        self.close();
        self.hand = Some(Paused { at: self.at, by: by.to_owned() });
    }

    /// How long an answer is kept that asks for this; nothing when none is.
    pub fn ttl(&self, asked: Option<Duration>) -> Option<Duration> {
        let own = self.rules.cache_ttl?;
        Some(asked.unwrap_or(own).min(limits::CACHE_TTL_MAX)).filter(|ttl| !ttl.is_zero())
    }
}

/// An answer of a source that is kept, or being fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheRow {
    /// Whose answer it is.
    pub source: SourceId,
    /// Under which it is found again.
    pub key: String,
    /// Missing while it is fetched for the first time.
    pub value: Option<serde_json::Value>,
    /// When it was kept.
    pub kept_at: Timestamp,
    /// Worth nothing from then on; without a value: the end of the flight.
    pub expires_at: Timestamp,
    /// Who is fetching it anew, if somebody is.
    pub flight: Option<Flight>,
}

/// Who is fetching an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flight {
    /// The run that fetches.
    pub run: RunId,
    /// The token under which it does.
    pub token: u64,
    /// When it is no longer waited for.
    pub until: Timestamp,
}

/// What somebody who wants an answer is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Recall {
    /// Kept, and still good.
    Hit(serde_json::Value),
    /// Fetch it. Nobody else does until then, if the moment is given; without it nothing is kept.
    Fetch(Option<Timestamp>),
    /// Somebody else is fetching it, at the latest until then.
    Wait(Timestamp),
}

impl CacheRow {
    /// The answer as far as it is still worth something to one who wants it at most `ttl` old.
    fn fresh(&self, now: Timestamp, ttl: Duration) -> Option<&serde_json::Value> {
        let live = now < self.expires_at && now < self.kept_at.after(ttl);
        self.value.as_ref().filter(|_| live)
    }

    /// An answer that was fetched.
    pub fn kept(
        source: SourceId,
        key: String,
        value: serde_json::Value,
        now: Timestamp,
        ttl: Duration,
    ) -> Self {
        CacheRow { source, key, value: Some(value), kept_at: now, expires_at: now.after(ttl), flight: None }
    }

    /// What is left when this claim gives up its flight, or forgets the answer: another's flight goes on.
    pub fn forgotten(self, now: Timestamp, run: RunId, token: u64) -> Option<Self> {
        let flight = self.flight.filter(|f| now < f.until && (f.run, f.token) != (run, token))?;
        Some(CacheRow { value: None, expires_at: flight.until, ..self })
    }

    /// Worth keeping neither as an answer nor as a flight from this moment on.
    pub fn over_at(&self) -> Timestamp {
        self.flight.map_or(self.expires_at, |flight| self.expires_at.max(flight.until))
    }

    /// Whether it may be thrown away.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.over_at()
    }
}

/// What is told to one that wants an answer, and the row to write, if any: only one at a time fetches.
pub fn recall(
    now: Timestamp,
    source: &Source,
    row: Option<&CacheRow>,
    key: &str,
    ttl: Option<Duration>,
    (run, token): (RunId, u64),
) -> (Recall, Option<CacheRow>) {
    let now = now.max(source.at);
    let Some(ttl) = source.ttl(ttl) else { return (Recall::Fetch(None), None) };
    if let Some(value) = row.and_then(|row| row.fresh(now, ttl)) {
        return (Recall::Hit(value.clone()), None);
    }
    let flight = row.and_then(|row| row.flight).filter(|f| now < f.until);
    if let Some(flight) = flight.filter(|f| (f.run, f.token) != (run, token)) {
        return (Recall::Wait(flight.until), None);
    }
    let until = now.after(limits::CACHE_FLIGHT);
    let older = row.filter(|row| row.value.is_some() && now < row.expires_at);
    let begun = CacheRow {
        source: source.id,
        key: key.to_owned(),
        // Others may be content with an older answer than this one wants.
        value: older.and_then(|row| row.value.clone()),
        kept_at: older.map_or(now, |row| row.kept_at),
        expires_at: older.map_or(until, |row| row.expires_at),
        flight: Some(Flight { run, token, until }),
    };
    (Recall::Fetch(Some(until)), Some(begun))
}

#[cfg(test)]
mod tests;
