//! Histories over every policy: runs that give way and merge, halves, blocks, events aside, steps, the operator's hand.

use quell_core::event::{Overflow, Payload};
use quell_core::inspect::{Inspect, Inspected, RunFilter, RunRow};
use quell_core::lane::{DuringRun, OnFailed, RetryWith, RunRules};
use quell_core::lifecycle::RunState;
use quell_core::outcome::Verdict;
use quell_core::store::{
    AppendRequest, Control, ControlAction, Purge, PurgeWhat, Redrive, RedriveTo, RunPolicy, StepAction, Store,
};
use quell_core::window::WindowPolicy;
use serde_json::json;

use super::History;
use crate::builders::{
    FAILED, RELEASE, RETRY, SUCCEEDED, event, hold_request, no_window, policy_of, secs, settle_request,
    step_request,
};
use crate::reads::all_runs;

impl History<'_> {
    /// One step that only these histories take.
    pub(super) async fn policy_step(&mut self) {
        match self.chance.below(12) {
            0..3 => self.hold().await,
            3..6 => self.step().await,
            6 => self.extend().await,
            7 => self.sweep().await,
            8 | 9 => self.redrive().await,
            _ => self.hand().await,
        }
    }

    /// The queue's rules, drawn anew for each claim: a run is stamped with those of its latest one.
    pub(super) fn rules(&mut self, policy: RunPolicy) -> RunPolicy {
        let during_run = *self.chance.pick(&DuringRun::ALL);
        let newer = during_run != DuringRun::Queue || self.chance.percent(40);
        let rules = RunRules {
            during_run,
            max_interrupts: *self.chance.pick(&[1, 2]),
            retry_with: if newer { RetryWith::Newer } else { RetryWith::Same },
            on_failed: *self.chance.pick(&OnFailed::ALL),
        };
        // Nobody is notified: a notice tells numbers in its payload, and the two stores have different ones.
        RunPolicy { rules, ..policy }
    }

    /// Gives events wishes of their own.
    pub(super) fn wishes(&mut self, request: &mut AppendRequest) {
        for event in &mut request.events {
            match self.chance.below(16) {
                0 => event.priority = u8::try_from(self.chance.below(10)).expect("a digit"),
                1 => event.delay = Some(secs(*self.chance.pick(&[15, 55]))),
                2 => event.window = Some(WindowPolicy::None),
                3 => event.window = Some(WindowPolicy::Quiet { quiet: secs(5), max_wait: secs(30) }),
                4 => event.only_if_idle = true,
                5 => policy_of(event).content_dedupe = true,
                6 => {
                    let policy = policy_of(event);
                    (policy.lane_events, policy.overflow) = (2, Overflow::DropOldest);
                }
                _ => {}
            }
        }
    }

    async fn hold(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let gate = self.chance.percent(60);
        self.tell(format!("hold {} of {}, at its head {gate}", subject.run_id, subject.lane));
        let request = |batch: &quell_core::batch::Batch| hold_request(batch, gate.then_some(batch.head_seq));
        let answers = (self.subject.hold(request(&subject)).await, self.model.hold(request(&model)).await);
        self.compare.held(answers.0, answers.1);
    }

    async fn step(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let name = *self.chance.pick(&["llm", "send"]);
        // An intent stays without a result more often than it would in life, so that it is met again.
        let action = match (name, self.chance.below(4)) {
            (_, 0) => StepAction::Read,
            ("send", _) => StepAction::Begin,
            _ => StepAction::Finish(json!({ "n": self.chance.below(3) })),
        };
        self.tell(format!("step {name} of {} {action:?}", subject.run_id));
        let (s, m) = (step_request(&subject, name, action.clone()), step_request(&model, name, action));
        let answers = (self.subject.step(s).await, self.model.step(m).await);
        self.compare.step(answers.0, answers.1);
    }

    /// Settles in one of all the ways there are, sometimes with follow-up work.
    pub(super) async fn settle_any(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let verdicts =
            [SUCCEEDED, SUCCEEDED, FAILED, RETRY, RELEASE, Verdict::Interrupted, Verdict::Superseded];
        let verdict = *self.chance.pick(&verdicts);
        let (gate, carries) = (self.chance.percent(30), self.chance.percent(20));
        let delay = secs(*self.chance.pick(&[0, 10, 50]));
        self.tell(format!(
            "settle {} of {} as {verdict:?}, gate {gate}, carries {carries}",
            subject.run_id, subject.lane
        ));
        let request = |batch: &quell_core::batch::Batch| {
            let mut request = settle_request(batch, verdict);
            request.delay = delay;
            request.if_head = gate.then_some(batch.head_seq);
            if carries {
                request.events = vec![event("mail", "a").made("replaced by the run's own").build()];
            }
            request
        };
        let answers =
            (self.subject.settle(request(&subject)).await, self.model.settle(request(&model)).await);
        self.compare.settled(answers.0, answers.1);
    }

    /// Puts back one of the runs that ended badly; both stores list them in the order of their numbers.
    async fn redrive(&mut self) {
        let (subject, model) = (ended_badly(&*self.subject).await, ended_badly(&self.model).await);
        assert_eq!(subject.len(), model.len(), "dead and discarded runs");
        if model.is_empty() {
            return;
        }
        let place = usize::try_from(self.chance.below(model.len() as u64)).expect("a small index");
        let (subject, model) = (&subject[place], &model[place]);
        let to = *self.chance.pick(&[RedriveTo::Head, RedriveTo::New]);
        let fresh = self.chance.percent(30);
        self.tell(format!("redrive {} of {} {to:?} fresh {fresh}", subject.id, subject.lane));
        let request = |row: &RunRow| {
            let (events, edits) = (Vec::new(), Vec::new());
            let redrive = Redrive { run: row.id, events, edits, to, fresh, policy: no_window() };
            Control { actor: "ada".into(), action: ControlAction::Redrive(redrive) }
        };
        let (subject, model) = (request(subject), request(model));
        let answers = (self.subject.control(subject).await, self.model.control(model).await);
        self.compare.controlled(answers.0, answers.1);
    }

    /// An operator's hand on one lane or one event.
    async fn hand(&mut self) {
        let lane = self.chance.pick(&self.lanes).clone();
        let action = match self.chance.below(10) {
            0..3 => ControlAction::Cancel { lane, run: None },
            3 => ControlAction::Flush(lane),
            4 => ControlAction::ResumeLane(lane),
            5 => {
                let what = *self.chance.pick(&[PurgeWhat::Dead, PurgeWhat::Delayed, PurgeWhat::Buffered]);
                let dry_run = self.chance.percent(30);
                let (queue, tenant, key) = (lane.queue, Some(lane.tenant), Some(lane.key));
                ControlAction::Purge(Purge { queue, tenant, key, what, dry_run })
            }
            _ => {
                let read = self.model.inspect(Inspect::Lane(lane.clone())).await;
                let Ok(Inspected::Lane(Some(detail))) = read else { return };
                // An id that a store has made holds a number of its own.
                let theirs = |id: &str| ["run_", "conflict_", "purged_"].iter().any(|p| id.starts_with(p));
                let first = detail.events.first().map(|e| e.id.clone());
                let Some(id) = first.filter(|id| !theirs(id.as_str())) else { return };
                match self.chance.below(3) {
                    0 => ControlAction::DeleteEvent { lane, id },
                    1 => ControlAction::EraseEvent { lane, id },
                    _ => ControlAction::EditEvent { lane, id, payload: Payload::of(&json!("edited")) },
                }
            }
        };
        self.tell(format!("{action:?}"));
        let request = Control { actor: "ada".into(), action };
        let answers = (self.subject.control(request.clone()).await, self.model.control(request).await);
        self.compare.controlled(answers.0, answers.1);
    }
}

/// Failed and cancelled runs that still have events, in the order of their numbers.
async fn ended_badly(store: &dyn Store) -> Vec<RunRow> {
    let mut rows = all_runs(store, RunFilter::default()).await;
    rows.retain(|row| matches!(row.state, RunState::Failed | RunState::Cancelled) && row.events > 0);
    rows.sort_by_key(|row| row.id.number);
    rows
}
