//! Work on many lanes or runs that goes on after the page is closed: followed, held to a rate, and stopped by hand.
//!
//! An operation lives in the memory of the server that began it. Each thing it does is one action like any other, recorded with
//! who wanted it and why, and does nothing where it has been done already: one that was cut off by a restart is begun again.
//!
//! `bulk.rs` and `dead.rs` begin operations; the pages here show them.

mod pages;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quell::RedriveWish;
use quell::clock;
use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::LaneKey;
use quell::quell_core::fingerprint::fingerprint;
use quell::quell_core::inspect::{LaneFilter, LaneRow, Reason, RunFilter, RunRow};
use quell::quell_core::store::Controlled;
use tokio_util::sync::CancellationToken;

use super::lane_query::LaneQuery;
use crate::app::App;
use crate::auth::Principal;
use crate::control::{self, LaneAction};
use crate::error::{Answer, Problem};
use crate::limits;

pub(super) use pages::{list, show, stop};

/// What is to be done to what.
pub(super) enum Plan {
    /// To these lanes.
    Lanes { action: LaneAction, lanes: Vec<LaneKey> },
    /// To every lane that is like this.
    Matching { action: LaneAction, query: LaneQuery, filter: LaneFilter },
    /// Every dead run of one kind of error goes back, the oldest first, so that events of a key keep their order.
    Redrive { kind: String, filter: RunFilter, wish: RedriveWish },
}

/// How an operation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Finished,
    Stopped,
    /// It gave up; the text says why.
    Failed(String),
}

impl State {
    pub(super) fn as_str(&self) -> &'static str {
        match self {
            State::Running => "running",
            State::Finished => "finished",
            State::Stopped => "stopped",
            State::Failed(_) => "failed",
        }
    }

    /// As states of runs look.
    pub(super) fn tone(&self) -> &'static str {
        match self {
            State::Running => "running",
            State::Finished => "succeeded",
            State::Stopped => "retryable",
            State::Failed(_) => "failed",
        }
    }
}

/// How far it is.
#[derive(Debug, Clone)]
pub(super) struct Progress {
    pub(super) state: State,
    /// How many there are, once that is known.
    pub(super) total: Option<u64>,
    pub(super) done: u64,
    pub(super) changed: u64,
    pub(super) refused: u64,
    /// The first of those that refused, with the reason.
    pub(super) problems: Vec<String>,
    pub(super) ended_at: Option<Timestamp>,
}

pub(super) struct Operation {
    pub(super) id: u64,
    pub(super) title: String,
    /// Who and why, as it is recorded.
    pub(super) actor: String,
    pub(super) begun_at: Timestamp,
    /// Actions a second.
    pub(super) rate: u32,
    /// Whose it is.
    owner: Principal,
    stop: CancellationToken,
    progress: Mutex<Progress>,
}

impl Operation {
    pub(super) fn progress(&self) -> Progress {
        self.change(|progress| progress.clone())
    }

    fn change<T>(&self, what: impl FnOnce(&mut Progress) -> T) -> T {
        what(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_running(&self) -> bool {
        self.change(|progress| progress.state == State::Running)
    }

    /// Those of others are for those who see everything.
    fn is_seen_by(&self, principal: &Principal) -> bool {
        principal.unlimited().is_ok() || principal.actor() == self.owner.actor()
    }
}

/// The operations of this server, the newest first; the oldest that has ended is forgotten for a new one.
#[derive(Default)]
pub(crate) struct Operations(Mutex<Book>);

#[derive(Default)]
struct Book {
    last: u64,
    kept: VecDeque<Arc<Operation>>,
}

impl Operations {
    fn book<T>(&self, what: impl FnOnce(&mut Book) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn seen_by(&self, principal: &Principal) -> Vec<Arc<Operation>> {
        self.book(|book| book.kept.iter().filter(|op| op.is_seen_by(principal)).cloned().collect())
    }

    fn find(&self, principal: &Principal, id: u64) -> Answer<Arc<Operation>> {
        let found = self.seen_by(principal).into_iter().find(|op| op.id == id);
        found.ok_or_else(|| {
            Problem::not_found("there is no such operation: a server forgets them when it ends")
        })
    }

    /// Begins one and answers with its number.
    pub(super) fn begin(
        &self,
        app: &Arc<App>,
        owner: &Principal,
        actor: String,
        title: String,
        rate: u32,
        plan: Plan,
    ) -> Answer<u64> {
        let operation = self.book(|book| {
            if book.kept.iter().filter(|op| op.is_running()).count() >= limits::OPERATIONS_RUNNING {
                let detail = "too many operations run already: wait for one, or stop it";
                return Err(Problem::too_many(detail, Duration::from_secs(10)));
            }
            book.last += 1;
            let operation = Arc::new(Operation {
                id: book.last,
                title,
                actor,
                begun_at: app.wall(),
                rate: rate.clamp(1, limits::OPERATION_RATE_MAX),
                owner: owner.clone(),
                stop: app.stop.child_token(),
                progress: Mutex::new(Progress {
                    state: State::Running,
                    total: None,
                    done: 0,
                    changed: 0,
                    refused: 0,
                    problems: Vec::new(),
                    ended_at: None,
                }),
            });
            book.kept.push_front(operation.clone());
            if book.kept.len() > limits::OPERATIONS_KEPT
                && let Some(oldest) = book.kept.iter().rposition(|op| !op.is_running())
            {
                book.kept.remove(oldest);
            }
            Ok(operation)
        })?;
        let (app, id) = (app.clone(), operation.id);
        tokio::spawn(async move {
            let ended = operation.run(&app, plan).await;
            operation.change(|progress| {
                progress.ended_at = Some(app.wall());
                progress.state = match ended {
                    Ok(state) => state,
                    Err(problem) => State::Failed(problem.detail().to_owned()),
                };
            });
        });
        Ok(id)
    }
}

impl Operation {
    async fn run(&self, app: &Arc<App>, plan: Plan) -> Answer<State> {
        match plan {
            Plan::Lanes { action, lanes } => {
                self.expect(lanes.len());
                self.act_on(app, action, lanes).await
            }
            Plan::Matching { action, query, mut filter } => loop {
                let page = app.engine.lanes(filter.clone()).await?;
                let now = app.now().await?;
                let wanted = |row: &LaneRow| query.matches(row, now) && concerns(action, row, now);
                let lanes = page.items.into_iter().filter(|row| wanted(row)).map(|row| row.lane).collect();
                let state = self.act_on(app, action, lanes).await?;
                if state != State::Finished || page.next.is_none() {
                    return Ok(state);
                }
                filter.cursor = page.next;
            },
            Plan::Redrive { kind, filter, wish } => {
                let mut runs = self.dead_of(app, &kind, filter).await?;
                // The newest were listed first.
                runs.reverse();
                self.expect(runs.len());
                for run in runs {
                    if !self.goes_on(app).await? {
                        return Ok(State::Stopped);
                    }
                    let answer = app.engine.redrive(run, wish.clone(), &self.actor).await;
                    self.took(run, answer.map_err(Problem::from))?;
                }
                Ok(State::Finished)
            }
        }
    }

    async fn act_on(&self, app: &Arc<App>, action: LaneAction, lanes: Vec<LaneKey>) -> Answer<State> {
        for lane in lanes {
            if !self.goes_on(app).await? {
                return Ok(State::Stopped);
            }
            let answer = control::act(app, lane.clone(), action, &self.actor).await;
            self.took(&lane, answer)?;
        }
        Ok(State::Finished)
    }

    /// The list is made before the first one is touched: what dies again meanwhile is not taken twice.
    async fn dead_of(&self, app: &App, kind: &str, mut filter: RunFilter) -> Answer<Vec<RunId>> {
        let mut runs = Vec::new();
        while !self.stop.is_cancelled() {
            let page = app.engine.runs(filter.clone()).await?;
            runs.extend(page.items.iter().filter(|row| is_dead_of(row, kind)).map(|row| row.id));
            if page.next.is_none() || runs.len() >= limits::OPERATION_RUNS_MAX {
                break;
            }
            filter.cursor = page.next;
        }
        Ok(runs)
    }

    fn expect(&self, total: usize) {
        self.change(|progress| progress.total = Some(total as u64));
    }

    /// Waits for its turn; false when somebody has stopped it, or whoever began it may not do this any more.
    async fn goes_on(&self, app: &App) -> Answer<bool> {
        tokio::select! {
            () = self.stop.cancelled() => return Ok(false),
            () = clock::sleep(Duration::from_secs(1) / self.rate) => {}
        }
        match self.owner.token_id() {
            Some(id) => Ok(app.tokens.by_id(app, id).await?.is_some()),
            None => Ok(true),
        }
    }

    /// A store that is away ends the whole; anything else concerns this one.
    fn took(&self, what: impl ToString, answer: Answer<Controlled>) -> Answer<()> {
        self.change(|progress| {
            progress.done += 1;
            match answer {
                Ok(controlled) => progress.changed += u64::from(controlled.changed),
                Err(problem) if problem.ends_bulk() => return Err(problem),
                Err(problem) => {
                    progress.refused += 1;
                    if progress.problems.len() < limits::OPERATION_PROBLEMS {
                        progress.problems.push(format!("{}: {}", what.to_string(), problem.detail()));
                    }
                }
            }
            Ok(())
        })
    }
}

/// Whether an action would change anything about a lane as it is.
pub(super) fn concerns(action: LaneAction, row: &LaneRow, now: Timestamp) -> bool {
    match action {
        LaneAction::Flush => row.reason != Reason::Running && row.due_at.is_some_and(|due| due > now),
        LaneAction::Pause => row.paused_by.is_none(),
        LaneAction::Resume => row.paused_by.is_some() || row.blocked_by.is_some(),
        LaneAction::Cancel => row.state.is_some(),
    }
}

/// A dead letter of this kind that has not gone back.
pub(super) fn is_dead_of(row: &RunRow, kind: &str) -> bool {
    row.links.redriven_into.is_none() && fingerprint(row.error.as_deref().unwrap_or_default()).id == kind
}
