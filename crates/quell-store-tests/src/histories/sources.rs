//! Histories of sources: limited rates, breakers, kept answers, and hands laid on them.
//!
//! Which of several lanes gets the only token is each store's own choice, so every lane has sources of its own here.
//!
//! Rates are one or three a minute: with advances of 20 s a bucket then always holds whole thirds of a token, plus what
//! real time adds, and real time only adds. The waits that sources ask for leave the remainder 10, like all others.

use quell_core::batch::Batch;
use quell_core::outcome::Verdict;
use quell_core::source::{FaultKind, SourceFault, SourceReport, SourceRules, SourceVerdict};
use quell_core::store::{
    AppendRequest, Control, ControlAction, SettleRequest, SourceAction, SourceScope, Store,
};
use serde_json::json;

use super::History;
use crate::builders::{
    FAILED, RELEASE, RETRY, SUCCEEDED, policy_of, secs, settle_request, source_name, source_request,
};

impl History<'_> {
    /// Each lane has the source of its queue, and another one that some of its events name.
    pub(super) async fn declare_sources(&mut self) {
        for lane in 0..self.lanes.len() {
            for own in [false, true] {
                let (name, rules) = (source_name(&name(lane, own)), self.source_rules());
                self.lay(ControlAction::PutSource { name, rules }).await;
            }
        }
    }

    fn source_rules(&mut self) -> SourceRules {
        SourceRules {
            per_minute: *self.chance.pick(&[None, Some(1), Some(3)]),
            burst: *self.chance.pick(&[1, 2, 3]),
            failures: *self.chance.pick(&[1, 2]),
            cooldown: secs(*self.chance.pick(&[30, 50])),
            cache_ttl: *self.chance.pick(&[None, Some(secs(30)), Some(secs(70))]),
            shared: self.chance.percent(30),
        }
    }

    /// Governs the events of an append.
    pub(super) fn govern(&mut self, request: &mut AppendRequest) {
        for event in &mut request.events {
            let lane = self.lanes.iter().position(|lane| *lane == event.lane).unwrap_or(0);
            match self.chance.below(20) {
                0 => {}
                1 => event.source = Some(source_name("nobody")),
                2..5 => event.source = Some(source_name(&name(lane, true))),
                _ => policy_of(event).source = Some(source_name(&name(lane, false))),
            }
        }
    }

    /// One step that only these histories take.
    pub(super) async fn source_step(&mut self) {
        match self.chance.below(23) {
            0..7 => self.settle_saying().await,
            7..16 => self.ask_source().await,
            16 => self.extend().await,
            17 => self.sweep().await,
            18 => self.leave_fetching().await,
            19 => self.outage().await,
            _ => self.source_hand().await,
        }
    }

    async fn settle_saying(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let report = match self.chance.below(8) {
            0..3 => SourceReport::Fault(self.source_fault()),
            3 => SourceReport::Unused,
            4 => SourceReport::Reported,
            5 => SourceReport::Starved,
            _ => SourceReport::Fine,
        };
        let verdict = match report {
            SourceReport::Starved => RELEASE,
            _ => *self.chance.pick(&[SUCCEEDED, SUCCEEDED, RETRY, RETRY, RETRY, RELEASE, FAILED]),
        };
        self.settle_both(&subject, &model, verdict, report).await;
    }

    async fn settle_both(&mut self, subject: &Batch, model: &Batch, verdict: Verdict, report: SourceReport) {
        self.tell(format!("settle {} of {} as {verdict:?}, {report:?}", subject.run_id, subject.lane));
        let request = |batch: &Batch| SettleRequest { source: report, ..settle_request(batch, verdict) };
        let answers = (self.subject.settle(request(subject)).await, self.model.settle(request(model)).await);
        self.compare.settled(answers.0, answers.1);
    }

    fn source_fault(&mut self) -> SourceFault {
        let fault = SourceFault::new(FaultKind::ServerError);
        let wish = self.chance.percent(30);
        if wish { fault.retry_after(secs(*self.chance.pick(&[10, 30]))) } else { fault }
    }

    async fn ask_source(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let key = self.chance.pick(&["k", "k", "b*'\n"]).to_string();
        let ttl = *self.chance.pick(&[None, None, Some(secs(10)), Some(secs(50))]);
        let value = json!({ "n": self.chance.below(9) });
        let actions = match self.chance.below(12) {
            0..3 => vec![SourceAction::Take],
            3 => vec![SourceAction::Report(SourceVerdict::Fine)],
            4 => vec![SourceAction::Report(SourceVerdict::Fault(self.source_fault()))],
            5..8 => vec![SourceAction::Recall { key, ttl }],
            8 => vec![SourceAction::Keep { key, value, ttl }],
            // As a client does: it looks, fetches, keeps.
            9 | 10 => vec![
                SourceAction::Recall { key: key.clone(), ttl },
                SourceAction::Keep { key: key.clone(), value, ttl: None },
                SourceAction::Recall { key, ttl },
            ],
            _ => vec![SourceAction::Forget { key }],
        };
        for action in actions {
            self.ask(&subject, &model, action).await;
        }
    }

    async fn ask(&mut self, subject: &Batch, model: &Batch, action: SourceAction) {
        self.tell(format!("{} of {} asks its source {action:?}", subject.run_id, subject.lane));
        let (s, m) = (source_request(subject, action.clone()), source_request(model, action));
        let answers = (self.subject.source(s).await, self.model.source(m).await);
        self.compare.asked(answers.0, answers.1);
    }

    /// A source is at fault again and again, also when it is tried after its cooldown.
    async fn outage(&mut self) {
        let Some((mut subject, mut model)) = self.some_claim() else { return };
        for _ in 0..4 {
            let report = SourceReport::Fault(SourceFault::new(FaultKind::TimeOut));
            self.settle_both(&subject, &model, RETRY, report).await;
            self.tell("advance 60 s".into());
            self.world.advance(secs(60)).await;
            self.follow().await;
            self.claim().await;
            let again = self.claims.iter().rev().find(|(s, _)| s.lane == subject.lane).cloned();
            let Some(next) = again.filter(|(s, _)| s.token != subject.token) else { return };
            (subject, model) = next;
        }
    }

    /// A holder that is to fetch an answer gives up its run instead, and the next one finds it being fetched.
    async fn leave_fetching(&mut self) {
        let Some((subject, model)) = self.some_claim() else { return };
        let recall = || SourceAction::Recall { key: "left".into(), ttl: None };
        self.ask(&subject, &model, recall()).await;
        self.settle_both(&subject, &model, RETRY, SourceReport::Fine).await;
        self.claim().await;
        let again = self.claims.iter().rev().find(|(s, _)| s.lane == subject.lane).cloned();
        if let Some((subject, model)) = again {
            self.ask(&subject, &model, recall()).await;
        }
    }

    async fn source_hand(&mut self) {
        let lane = usize::try_from(self.chance.below(self.lanes.len() as u64)).expect("a small index");
        let name = source_name(&name(lane, self.chance.percent(20)));
        // Of a shared one, or of one that nobody has asked yet, there is none under the lane's tenant.
        let tenant = self.lanes[lane].tenant.clone();
        let scope = SourceScope { tenant, name: name.clone() };
        let action = match self.chance.below(10) {
            0 | 1 => ControlAction::DisableSource(scope),
            2..5 => ControlAction::EnableSource(scope),
            5 => ControlAction::ResetSource(scope),
            6 | 7 => {
                self.lay(ControlAction::RemoveSource { name }).await;
                if self.chance.percent(60) {
                    return;
                }
                ControlAction::ReleaseSource(scope)
            }
            _ => ControlAction::PutSource { name, rules: self.source_rules() },
        };
        self.lay(action).await;
    }

    async fn lay(&mut self, action: ControlAction) {
        self.tell(format!("{action:?}"));
        let request = Control { actor: "ada".into(), action };
        let answers = (self.subject.control(request.clone()).await, self.model.control(request).await);
        self.compare.controlled(answers.0, answers.1);
    }
}

/// The source of a lane's queue, or the one that its events may name instead.
fn name(lane: usize, own: bool) -> String {
    format!("{}{lane}", if own { "own" } else { "queue" })
}
