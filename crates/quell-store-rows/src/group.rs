//! Groups: calls that arrive while a transaction is under way are done together in the next one.
//!
//! Grouping matters more than any schema: the commit is paid once. One task per verb takes what is waiting, so appends,
//! settles and extends never queue behind one another. A group whose transaction definitely failed is taken apart and
//! each call is tried alone, so that none suffers for another; an unknown end is told to each caller, who repeats by id
//! or token.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::limits;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::append::Answers;
use crate::repeats::Repeats;
use crate::rows::{RowsResult, Trouble};

/// One verb, done for several calls at once.
#[async_trait]
pub(crate) trait Grouped: Send + Sync + 'static {
    type Request: Send + Sync + 'static;
    type Answer: Send + 'static;

    /// What a call weighs; a group weighs at most [`Grouped::MOST`].
    fn weight(request: &Self::Request) -> usize;
    const MOST: usize;

    async fn perform(&self, requests: &[&Self::Request]) -> RowsResult<Answers<Self::Answer>>;
}

type Call<G> = (<G as Grouped>::Request, oneshot::Sender<StoreResult<<G as Grouped>::Answer>>, Instant);

/// The way in to a group.
pub(crate) struct Entrance<G: Grouped>(mpsc::Sender<Call<G>>);

impl<G: Grouped> Entrance<G> {
    pub(crate) fn open(verb: G) -> Self {
        let (sender, receiver) = mpsc::channel(limits::STORE_QUEUE_MAX);
        tokio::spawn(serve(Arc::new(verb), receiver));
        Entrance(sender)
    }

    pub(crate) async fn call(&self, request: G::Request) -> StoreResult<G::Answer> {
        let (answer, answered) = oneshot::channel();
        match self.0.try_send((request, answer, Instant::now())) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                let max = limits::STORE_QUEUE_MAX;
                return Err(StoreError::unavailable(format!("{max} calls wait for the store already")));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => {
                return Err(StoreError::unavailable("the store is closed"));
            }
        }
        answered.await.unwrap_or_else(|_| {
            let text = "the store was closed before it answered; repeat with the same id or token";
            Err(StoreError::new(ErrorKind::Unknown, text))
        })
    }
}

async fn serve<G: Grouped>(verb: Arc<G>, mut calls: mpsc::Receiver<Call<G>>) {
    let mut left: Option<Call<G>> = None;
    loop {
        let first = match left.take() {
            Some(call) => call,
            None => match calls.recv().await {
                Some(call) => call,
                None => return,
            },
        };
        let mut weight = G::weight(&first.0);
        let mut group = vec![first];
        while let Ok(call) = calls.try_recv() {
            weight += G::weight(&call.0);
            if weight > G::MOST {
                left = Some(call);
                break;
            }
            group.push(call);
        }
        group.retain_mut(|call| !call.1.is_closed());
        let (late, group): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|(.., since)| since.elapsed() > limits::STORE_CALL_DEADLINE);
        for (_, answer, _) in late {
            let text = "the store is too busy or away: nothing was done, try again later";
            let _ = answer.send(Err(StoreError::unavailable(text)));
        }
        done_together(&verb, group).await;
    }
}

async fn done_together<G: Grouped>(verb: &Arc<G>, group: Vec<Call<G>>) {
    if group.is_empty() {
        return;
    }
    let requests: Vec<&G::Request> = group.iter().map(|(request, ..)| request).collect();
    let mut repeats = Repeats::new();
    let done = loop {
        match verb.perform(&requests).await {
            Err(Trouble::Again) if repeats.again().await => {}
            other => break other,
        }
    };
    match done {
        Ok(answers) => {
            for ((request, answer, _), done) in group.into_iter().zip(answers) {
                match done {
                    // Nobody listens when the caller has given up; what was done stays done.
                    Some(done) => drop(answer.send(done)),
                    None => alone(verb.clone(), request, answer),
                }
            }
        }
        Err(Trouble::Store(error)) if group.len() == 1 || !is_of_one(&error) => {
            for (_, answer, _) in group {
                let _ = answer.send(Err(error.clone()));
            }
        }
        Err(_) => {
            for (request, answer, _) in group {
                alone(verb.clone(), request, answer);
            }
        }
    }
}

/// Whether the fault may lie with one of the calls; a store that is away is away for all of them.
fn is_of_one(error: &StoreError) -> bool {
    !matches!(error.kind, ErrorKind::Unknown | ErrorKind::Unavailable)
}

/// Does one call by itself, beside the groups: it may have to wait for its lane.
fn alone<G: Grouped>(verb: Arc<G>, request: G::Request, answer: oneshot::Sender<StoreResult<G::Answer>>) {
    tokio::spawn(async move {
        let mut repeats = Repeats::new();
        let done = loop {
            match verb.perform(&[&request]).await {
                Err(Trouble::Again) if repeats.again().await => {}
                Err(Trouble::Again) => break Err(Repeats::too_many()),
                Err(Trouble::Store(error)) => break Err(error),
                Ok(mut answers) => match answers.pop().flatten() {
                    Some(done) => break done,
                    None if repeats.again().await => {}
                    None => break Err(Repeats::too_many()),
                },
            }
        };
        let _ = answer.send(done);
    });
}

/// How long a caller that repeats itself waits at the most.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);
