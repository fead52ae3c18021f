//! Handlers as actors: they take their time, remember steps, pass the gate, write to the fenced sink, and end in every
//! way a handler can.
//!
//! What one does is drawn when it begins, from the seed, its lane and how often the lane was claimed before. A handler
//! of a driver ends with an outcome; one of a puller settles by itself and repeats its settlement until it is answered.

use std::time::Duration;

use quell_check::history::{Name, Op};
use quell_core::batch::{Batch, RunId};
use quell_core::error::{ErrorKind, StoreError};
use quell_core::event::{EventId, NewEvent, NewEventId, Payload};
use quell_core::outcome::{Outcome, Verdict};
use quell_core::source::SourceReport;
use quell_core::step::{HandlerEnd, RunInput};
use quell_core::store::{
    AppendRequest, ExtendRequest, HoldAnswer, HoldRequest, SettleRequest, SourceAnswer, SourceRequest,
    StepAction, StepAnswer, StepRequest,
};

use crate::call::{Reply, Request};
use crate::chance::{Chance, hash};
use crate::governed::{Ask, Dealings};
use crate::plan::Habit;
use crate::seen::Sight;
use crate::world::{Part, What, Who, World};

/// How often a call without an answer is repeated before a handler gives up.
const PATIENCE: u32 = 12;
/// How often a handler waits for its source before it hands its run back.
const WAITS: u32 = 3;

pub(crate) struct Handler {
    batch: Batch,
    acts: Vec<Act>,
    at: usize,
    tries: u32,
    /// How often its source has let it wait.
    waits: u32,
    wish: u32,
    /// Claimed by a puller, which settles by itself.
    pull: bool,
    begun: bool,
    /// Will go on when it is told to stop.
    stubborn: bool,
    /// Does not look at what its renewals say.
    deaf: bool,
    told: bool,
    ending: Ending,
    settle: Option<(SettleRequest, bool)>,
    /// Settlements that were answered.
    settled: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Work(u64),
    Extend,
    /// Look whether a step is known, or record the intent; its work and its result follow.
    Begin {
        name: u8,
        once: bool,
    },
    Finish {
        name: u8,
        once: bool,
    },
    Hold {
        if_head: bool,
    },
    Source(Ask),
    Sink,
    Squat {
        same: bool,
    },
    Forget,
    End,
}

#[derive(Debug, Clone, Copy)]
struct Ending {
    how: How,
    if_head: bool,
    carry: usize,
    twice: bool,
    otherwise: bool,
    source: SourceReport,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum How {
    Verdict(Verdict),
    Panic,
    Error,
}

impl Handler {
    /// It does not stop, and its run was given up.
    pub(crate) fn is_ghost(&self) -> bool {
        self.told && self.stubborn
    }

    pub(crate) fn run(&self) -> RunId {
        self.batch.run_id
    }

    pub(crate) fn end(&self) -> Op {
        Op::HandlerEnd { run: self.batch.run_id.number, token: self.batch.token }
    }

    /// There is nothing to fetch, so nothing is kept either.
    fn skip_fetch(&mut self, asked: Ask) {
        let ends = |act: &Act| matches!(act, Act::Source(ask) if ask.ends(asked));
        let skip = self.acts[self.at..].iter().position(ends);
        self.at += skip.map_or(0, |skip| skip + 1);
    }

    fn step(&self, name: u8, once: bool, action: StepAction) -> Request {
        let Batch { run_id, token, revision, .. } = self.batch;
        let name = format!("{}{name}", if once { "once" } else { "step" });
        Request::Step { request: StepRequest { run_id, token, name, action }, revision }
    }
}

impl World {
    fn handler_part(&self, node: usize, run: u64) -> Who {
        Who::Part { node, life: self.nodes[node].life, part: Part::Handler(run) }
    }

    pub(crate) fn start_handler(&mut self, node: usize, run: u64, batch: Batch, pull: bool) {
        let lane = self.recorder.lane(&batch.lane);
        let handler = self.draw_handler(node, &lane, batch, pull);
        for event in &handler.batch.events {
            if event.id.as_str().starts_with("schedule/") {
                self.seen.saw(Sight::ScheduleFired);
            } else if event.id.as_str().ends_with("/notify") {
                self.seen.saw(Sight::NoticeDelivered);
            }
        }
        let (newer, id) = (self.nodes[node].newer, handler.run());
        if newer {
            self.seen.saw(Sight::ClaimedNewer);
        }
        if self.versions.insert(id, newer).is_some_and(|before| before != newer) {
            self.seen.saw(Sight::ClaimedAcross);
        }
        self.nodes[node].handlers.insert(run, handler);
        let who = self.handler_part(node, run);
        self.later(self.now, What::Timer { who, wish: 0 });
    }

    fn draw_handler(&mut self, node: usize, lane: &Name, batch: Batch, pull: bool) -> Handler {
        let before = self.claims_of.entry(lane.clone()).or_default();
        *before += 1;
        let key = [4, hash(lane.as_bytes()), *before];
        let mut chance = Chance::keyed(self.plan.seed, key);
        let c = &mut chance;
        let mut has = |world: &mut World, habit: Habit| {
            let yes = c.percent(world.habit(habit));
            if yes {
                world.seen.saw_habit(habit);
            }
            yes
        };
        let how = self.draw_ending(&mut has);
        let (slow, very) = (has(self, Habit::Slow), has(self, Habit::VerySlow));
        let steps = [has(self, Habit::Step), has(self, Habit::Step)];
        let once = has(self, Habit::StepOnce);
        let (hold, gate) = (has(self, Habit::Hold), has(self, Habit::HoldIfHead));
        let stubborn = !pull && has(self, Habit::IgnoreStop);
        let deaf = !pull || has(self, Habit::Deaf);
        let abandon = pull && has(self, Habit::Abandon);
        let extends = pull && has(self, Habit::Extend);
        let carry = has(self, Habit::Carry);
        let squat = carry && has(self, Habit::Squat);
        let mut ending = Ending {
            how,
            if_head: has(self, Habit::IfHead),
            carry: 0,
            twice: pull && has(self, Habit::SettleTwice),
            otherwise: pull && has(self, Habit::SettleOtherwise),
            source: SourceReport::Fine,
        };
        ending.carry = if carry { c.index(3) + 1 } else { 0 };
        let lease = self.lease_of(node, &batch);
        let mut chance = Chance::keyed(self.plan.seed, [7, key[1], key[2]]);
        let asks = match batch.source {
            Some(_) => self.deal(&mut chance, &mut ending),
            None => Vec::new(),
        };
        let mut acts = Vec::new();
        let mut work = c.below(30);
        work +=
            if slow { c.between(50, lease) } else { 0 } + if very { c.between(lease, 3 * lease) } else { 0 };
        while extends && work > 0 {
            let piece = work.min(lease / 3 + 1);
            acts.extend([Act::Work(piece), Act::Extend]);
            work -= piece;
        }
        acts.push(Act::Work(work));
        for ask in asks {
            acts.extend([Act::Source(ask), Act::Work(chance.below(40))]);
        }
        for (name, wanted) in (0..).zip(steps) {
            if wanted {
                acts.extend(step_acts(name, false, c));
            }
        }
        if hold || gate {
            acts.push(Act::Hold { if_head: gate });
        }
        if once {
            acts.extend(step_acts(0, true, c));
        }
        let succeeds = how == How::Verdict(Verdict::Succeeded);
        if self.plan.shape.sink && (succeeds || c.percent(30)) {
            acts.push(Act::Sink);
        }
        if squat {
            acts.push(Act::Squat { same: c.percent(50) });
        }
        acts.push(if abandon { Act::Forget } else { Act::End });
        Handler {
            batch,
            acts,
            at: 0,
            tries: 0,
            waits: 0,
            wish: 0,
            pull,
            begun: false,
            stubborn,
            deaf,
            told: false,
            ending,
            settle: None,
            settled: 0,
        }
    }

    /// What it does with its source; one that was at fault usually keeps it from its work.
    fn deal(&mut self, c: &mut Chance, ending: &mut Ending) -> Vec<Ask> {
        let Dealings { asks, report, fails } = self.draw_dealings(c);
        ending.source = report;
        if fails && ending.how == How::Verdict(Verdict::Succeeded) {
            ending.how = How::Verdict(Verdict::Retry { after: None });
        }
        asks
    }

    fn draw_ending(&mut self, has: &mut impl FnMut(&mut World, Habit) -> bool) -> How {
        let verdicts = [
            (Habit::Retry, How::Verdict(Verdict::Retry { after: None })),
            (Habit::RetryAfter, How::Verdict(Verdict::Retry { after: Some(Duration::from_millis(333)) })),
            (Habit::Fail, How::Verdict(Verdict::Failed)),
            (Habit::Release, How::Verdict(Verdict::Release)),
            (Habit::Superseded, How::Verdict(Verdict::Superseded)),
            (Habit::Interrupted, How::Verdict(Verdict::Interrupted)),
            (Habit::Panic, How::Panic),
            (Habit::Error, How::Error),
        ];
        let mut how = How::Verdict(Verdict::Succeeded);
        for (habit, other) in verdicts {
            if has(self, habit) {
                how = other;
            }
        }
        how
    }

    fn lease_of(&self, node: usize, batch: &Batch) -> u64 {
        let found = self.plan.shape.queues.iter().position(|q| q.name == batch.lane.queue);
        let policy = &self.policies_of(node)[found.unwrap_or(0)];
        u64::try_from(policy.run.lease.as_millis()).unwrap_or(1_000)
    }

    /// Tells a handler to stop; false when it will not, or is over already.
    pub(crate) fn tell_to_stop(&mut self, node: usize, run: u64) -> bool {
        let Some(handler) = self.handler(node, run) else { return false };
        handler.told = true;
        !handler.stubborn
    }

    pub(crate) fn handler_timer(&mut self, node: usize, run: u64, wish: u32) {
        let process = 1 + node as u64;
        let Some(handler) = self.nodes[node].handlers.get_mut(&run).filter(|h| h.wish == wish) else {
            return;
        };
        if !std::mem::replace(&mut handler.begun, true) {
            let Batch { run_id, token, .. } = handler.batch;
            let seqs = handler.batch.events.iter().map(|e| e.seq).collect();
            self.recorder.fact(process, Op::HandlerBegin { run: run_id.number, token, seqs });
        }
        self.go(node, run);
    }

    fn wait(&mut self, node: usize, run: u64, length: u64) {
        let who = self.handler_part(node, run);
        let Some(handler) = self.handler(node, run) else { return };
        handler.wish += 1;
        let wish = handler.wish;
        self.later(self.now + length, What::Timer { who, wish });
    }

    /// Does the next act; a wait or a call ends the turn.
    fn go(&mut self, node: usize, run: u64) {
        let who = self.handler_part(node, run);
        loop {
            let value = self.now;
            let Some(handler) = self.handler(node, run) else { return };
            let Batch { run_id, token, .. } = handler.batch;
            let request = match handler.acts[handler.at] {
                Act::Work(length) => {
                    handler.at += 1;
                    return self.wait(node, run, length);
                }
                Act::Sink => {
                    handler.at += 1;
                    self.apply_at_sink(node, run);
                    continue;
                }
                Act::Forget => {
                    self.handler_over(node, run);
                    return;
                }
                Act::End => return self.finish(node, run),
                Act::Extend => {
                    let lease =
                        Duration::from_millis(self.lease_of(node, &self.nodes[node].handlers[&run].batch));
                    Request::Extend(ExtendRequest { run_id, token, lease })
                }
                Act::Begin { name, once } => {
                    handler.step(name, once, if once { StepAction::Begin } else { StepAction::Read })
                }
                Act::Finish { name, once } => {
                    handler.step(name, once, StepAction::Finish(serde_json::json!([token, value])))
                }
                Act::Hold { if_head } => {
                    let if_head = if_head.then_some(handler.batch.head_seq);
                    Request::Hold(HoldRequest { run_id, token, if_head })
                }
                Act::Source(ask) => {
                    Request::Source(SourceRequest { run_id, token, source: None, action: ask.action(value) })
                }
                Act::Squat { same } => {
                    let Some(squatter) = self.squatter(node, run, same) else { return };
                    Request::Append(AppendRequest { events: vec![squatter], repeat: true })
                }
            };
            return self.ask(who, request);
        }
    }

    fn apply_at_sink(&mut self, node: usize, run: u64) {
        let batch = &self.nodes[node].handlers[&run].batch;
        let lane = self.recorder.lane(&batch.lane);
        let (token, seqs) = (batch.token, batch.events.iter().map(|e| e.seq).collect::<Vec<_>>());
        let parts = match self.sink.apply(&lane, token, &seqs) {
            Some((now, before)) => [(now, true), (before, false)],
            None => [(seqs, false), (Vec::new(), false)],
        };
        for (seqs, accepted) in parts {
            if !seqs.is_empty() {
                let lane = lane.clone();
                self.recorder.fact(1 + node as u64, Op::SinkApply { lane, token, seqs, accepted });
            }
        }
    }

    /// The events that a settle carries: into the next lane of the same queue.
    fn carried(&self, batch: &Batch, count: usize) -> Vec<NewEvent> {
        let lanes = &self.plan.shape.lanes;
        let own = lanes.iter().position(|(key, _)| *key == batch.lane).unwrap_or(0);
        let (lane, queue) = &lanes[(own + 1) % lanes.len()];
        let event = |n: usize| {
            let payload = Payload::of(&serde_json::json!({ "after": batch.run_id, "n": n }));
            let id = NewEventId::Made(EventId::new("carried").expect("a word"));
            let mut event = NewEvent::new(lane.clone(), id, payload, self.policies[*queue].append.clone());
            event.delay = (n == 2).then_some(Duration::from_millis(200));
            event
        };
        (0..count).map(event).collect()
    }

    /// An event under the id that the first carried one will have.
    fn squatter(&self, node: usize, run: u64, same: bool) -> Option<NewEvent> {
        let handler = self.nodes[node].handlers.get(&run)?;
        let mut event = self.carried(&handler.batch, 1).pop()?;
        let id = EventId::new(format!("{}/1", handler.batch.run_id)).expect("a short text");
        event.id = NewEventId::Given(id);
        if !same {
            // Another payload of the same size.
            event.payload = Payload::of(&serde_json::json!({ "after": handler.batch.run_id, "n": 9 }));
        }
        Some(event)
    }

    pub(crate) fn handler_answered(&mut self, node: usize, run: u64, reply: Reply) {
        let chance = self.chance(self.handler_part(node, run)).below(40);
        let Some(handler) = self.handler(node, run) else { return };
        if let Reply::Settle(answer) = reply {
            return self.settle_answered(node, run, answer.err());
        }
        if let Some(error) = reply.error() {
            if error.is_temporary() && handler.tries < PATIENCE {
                handler.tries += 1;
                return self.wait(node, run, 10 + chance);
            }
            let squatting = matches!(reply, Reply::Append(_));
            if !squatting {
                // Nothing can be done under this token any more, or the store is away for too long.
                let (error, driven) = (error.clone(), !handler.pull);
                handler.ending.how = How::Verdict(Verdict::Retry { after: None });
                handler.at = handler.acts.len() - 1;
                if driven && error.kind == ErrorKind::LostLease {
                    self.feed_driver(node, run, RunInput::Lost(error));
                }
                return self.go(node, run);
            }
        }
        handler.tries = 0;
        let act = handler.acts[handler.at];
        handler.at += 1;
        match (act, reply) {
            (Act::Begin { name, once }, Reply::Step(Ok(answer))) => match answer {
                StepAnswer::New | StepAnswer::Begun => {}
                StepAnswer::Done { .. } | StepAnswer::Unknown => {
                    // Known, or nobody knows: the work is not done again.
                    let rest = &handler.acts[handler.at..];
                    let skip = rest.iter().position(|a| *a == Act::Finish { name, once });
                    handler.at += skip.map_or(0, |skip| skip + 1);
                }
            },
            (Act::Hold { .. }, Reply::Hold(Ok(held))) => {
                let verdict = match held.answer {
                    HoldAnswer::Held => None,
                    HoldAnswer::Superseded => Some(Verdict::Superseded),
                    HoldAnswer::Interrupted => Some(Verdict::Interrupted),
                };
                if let Some(verdict) = verdict {
                    handler.ending.how = How::Verdict(verdict);
                    handler.ending.source = SourceReport::Fine;
                    handler.at = handler.acts.len() - 1;
                    if !handler.pull {
                        let (answer, state) = (held.answer, held.state);
                        self.feed_driver(node, run, RunInput::GaveWay { answer, state });
                    }
                }
            }
            (Act::Source(ask), Reply::Source(Ok(answer))) => {
                if let Some(wait) = self.source_answered(node, run, ask, &answer) {
                    return self.wait(node, run, wait);
                }
            }
            (Act::Extend, Reply::Extend(Ok(told))) if (told.interrupt || told.cancel) && !handler.deaf => {
                let gives_way = if told.interrupt { Verdict::Interrupted } else { Verdict::Release };
                handler.ending.how = How::Verdict(gives_way);
                handler.at = handler.acts.len() - 1;
            }
            _ => {}
        }
        self.go(node, run);
    }

    /// What a source has answered; says how long the handler waits before it asks the same again.
    fn source_answered(&mut self, node: usize, run: u64, ask: Ask, answer: &SourceAnswer) -> Option<u64> {
        self.saw_answer(answer);
        let now = self.store_now();
        let handler = self.nodes[node].handlers.get_mut(&run)?;
        let until = match answer {
            SourceAnswer::Wait { until, .. } | SourceAnswer::Fetching { until } => until.as_millis(),
            SourceAnswer::Hit(_) => {
                handler.skip_fetch(ask);
                return None;
            }
            _ => return None,
        };
        if handler.waits < WAITS {
            handler.waits += 1;
            handler.at -= 1;
            return Some(u64::try_from(until - now).unwrap_or(0).clamp(1, 400));
        }
        if ask == Ask::Take {
            handler.ending.how = How::Verdict(Verdict::Release);
            handler.ending.source = SourceReport::Starved;
            handler.at = handler.acts.len() - 1;
            self.seen.saw(Sight::Starved);
        } else {
            handler.skip_fetch(ask);
        }
        None
    }

    /// The end: an outcome for the driver, or the puller's own settlement.
    fn finish(&mut self, node: usize, run: u64) {
        let Some(handler) = self.handler(node, run) else { return };
        if handler.pull {
            return self.settle(node, run);
        }
        let ending = handler.ending;
        let end = match ending.how {
            How::Verdict(verdict) => {
                let error = (verdict != Verdict::Succeeded).then(|| "so it was drawn".to_owned());
                let batch = &self.nodes[node].handlers[&run].batch;
                let if_head = ending.if_head.then_some(batch.head_seq);
                let events = self.carried(batch, ending.carry);
                let source = ending.source;
                HandlerEnd::Outcome(Outcome {
                    verdict,
                    error,
                    if_head,
                    events,
                    source,
                    ..Outcome::succeeded()
                })
            }
            How::Panic => HandlerEnd::Panicked("so it was drawn".to_owned()),
            How::Error => HandlerEnd::Error("so it was drawn".to_owned()),
        };
        self.handler_over(node, run);
        self.feed_driver(node, run, RunInput::HandlerEnded(end));
    }

    fn handler_over(&mut self, node: usize, run: u64) {
        if let Some(handler) = self.nodes[node].handlers.remove(&run) {
            self.recorder.fact(1 + node as u64, handler.end());
        }
    }

    /// Settles as a puller does: the very same settlement until it is answered.
    fn settle(&mut self, node: usize, run: u64) {
        let who = self.handler_part(node, run);
        let handler = &self.nodes[node].handlers[&run];
        let (request, own_delay) = handler.settle.clone().unwrap_or_else(|| {
            let Batch { run_id, token, head_seq, retries, .. } = handler.batch;
            let verdict = match handler.ending.how {
                How::Verdict(verdict) => verdict,
                How::Panic | How::Error => Verdict::Failed,
            };
            let mut request = SettleRequest::new(run_id, token, verdict);
            let queue = self.plan.shape.queues.iter().position(|q| q.name == handler.batch.lane.queue);
            let retry = &self.policies_of(node)[queue.unwrap_or(0)].settings.retry;
            request.delay = match verdict {
                Verdict::Retry { after: Some(after) } => after,
                Verdict::Release => retry.base,
                Verdict::Succeeded | Verdict::Failed => Duration::ZERO,
                _ => retry.delay(retries, 0.5),
            };
            request.if_head = handler.ending.if_head.then_some(head_seq);
            request.source = handler.ending.source;
            request.events = self.carried(&handler.batch, handler.ending.carry);
            (request, matches!(verdict, Verdict::Retry { after: Some(_) }))
        });
        if let Some(handler) = self.handler(node, run) {
            handler.settle = Some((request.clone(), own_delay));
        }
        self.ask(who, Request::Settle { request, own_delay });
    }

    fn settle_answered(&mut self, node: usize, run: u64, error: Option<StoreError>) {
        let chance = self.chance(self.handler_part(node, run)).below(60);
        let Some(handler) = self.handler(node, run) else { return };
        match error {
            Some(error) if error.is_temporary() && handler.tries < 3 * PATIENCE => {
                handler.tries += 1;
                self.wait(node, run, 20 + chance);
            }
            None if handler.settled == 0 && handler.ending.twice => {
                handler.settled += 1;
                self.wait(node, run, chance);
            }
            None if handler.settled < 2 && handler.ending.otherwise => {
                handler.settled = 2;
                if let Some((request, _)) = &mut handler.settle {
                    let other =
                        if request.verdict == Verdict::Failed { Verdict::Succeeded } else { Verdict::Failed };
                    request.verdict = other;
                }
                self.wait(node, run, chance);
            }
            _ => self.handler_over(node, run),
        }
    }
}

fn step_acts(name: u8, once: bool, c: &mut Chance) -> [Act; 3] {
    [Act::Begin { name, once }, Act::Work(c.below(40)), Act::Finish { name, once }]
}
