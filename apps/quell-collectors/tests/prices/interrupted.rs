//! Collections that do not end where they began: crashes, tokens that do not come, hands that come in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use quell::quell_core::event::Tenant;
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::outcome::Verdict;
use quell::{Handler, Outcome, Run};
use quell_collectors::COLLECT;
use tokio::sync::{Notify, mpsc};

use crate::market::{Fault, item};
use crate::world::{Dying, Kind, World, series, until};

fn three_pages() -> Vec<Vec<serde_json::Value>> {
    [("1", "30.00"), ("2", "31.00"), ("3", "32.00")]
        .map(|(id, price)| vec![item(id, "Silver Eagle", price)])
        .into()
}

pub(crate) async fn a_crash_between_store_and_settle_is_repeated_harmlessly(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\n").await;
    world.market.offer(three_pages());
    world.add("eagle", series("Silver Eagle")).await;
    let done = Arc::new(AtomicU64::new(0));
    world.work_as(Arc::new(Dying(world.collects(), done.clone())));
    let receipt = world.ask("eagle").await;
    until("everything is stored", async || done.load(Ordering::SeqCst) == 1).await;
    world.kill().await;
    let before = world.points("eagle").await;
    assert_eq!(before.len(), 3);
    world.work();
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2));
    let result = run.result.unwrap();
    assert_eq!((&result["new"], &result["seen"], &result["cached"]), (&3.into(), &0.into(), &false.into()));
    assert_eq!(world.points("eagle").await, before, "not even the times have changed");
    assert_eq!(world.market.asked(), ["1", "2", "3"]);
    world.idle().await;
    assert!(world.valued("eagle").await.is_some(), "the value is asked for by the attempt that ends");
}

pub(crate) async fn a_page_that_was_turned_is_not_fetched_again_after_a_crash(kind: Kind) {
    // Without a cache: the flight of the one that died would be waited for.
    let mut world = World::with(kind, "[sources.market]\ncache = false\n").await;
    world.market.offer(three_pages());
    world.market.fail(3, Fault::Silence);
    world.add("eagle", series("Silver Eagle")).await;
    world.work();
    let receipt = world.ask("eagle").await;
    until("the last page is asked for", async || world.market.asked().len() == 3).await;
    world.kill().await;
    assert!(world.points("eagle").await.is_empty());
    world.work();
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2));
    assert_eq!(world.market.asked(), ["1", "2", "3", "3"]);
    assert_eq!(run.result.unwrap()["new"], 3);
}

pub(crate) async fn a_page_that_was_turned_is_not_fetched_again_for_want_of_a_token(kind: Kind) {
    // A token every three seconds, and a page waits for one second.
    let mut world = World::with(kind, "[sources.market]\nrate_limit_per_minute = 20\nburst = 1\n").await;
    world.market.offer(three_pages());
    world.add("eagle", series("Silver Eagle")).await;
    world.work();
    let run = world.collect("eagle").await;
    assert_eq!(world.market.asked(), ["1", "2", "3"]);
    assert_eq!(run.row.attempts, 1, "no attempt is burned");
    assert!(run.row.claims > 1, "it was handed back and claimed again");
    assert_eq!(run.result.unwrap()["new"], 3);
    assert_eq!(world.source().await.failure_streak, 0);
}

pub(crate) async fn an_intake_that_is_removed_meanwhile_gets_no_points(kind: Kind) {
    let world = World::new(kind).await;
    world.market.offer(three_pages());
    world.market.fail(2, Fault::Silence);
    let coin = world.add("eagle", series("Silver Eagle")).await;
    let receipt = world.ask("eagle").await;
    until("the second page is asked for", async || world.market.asked().len() == 2).await;
    world.book.remove(&Tenant::none(), "eagle").await.unwrap();
    world.market.go_on();
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    assert_eq!(run.row.state, RunState::Failed);
    assert!(run.row.error.unwrap().contains("there is no intake \"eagle\""));
    world.book.add(&[coin]).await.unwrap();
    assert!(world.points("eagle").await.is_empty());
    assert_eq!(world.book.collected(&Tenant::none(), "eagle").await.unwrap(), []);
}

pub(crate) async fn a_worker_that_wakes_late_stores_nothing(kind: Kind) {
    let mut world = World::with(kind, "[sources.market]\n").await;
    world.market.offer(three_pages());
    world.add("eagle", series("Silver Eagle")).await;
    let (wake, (tell, mut told)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
    world.work_as(Arc::new(Asleep { inner: world.collects(), wake: wake.clone(), tell }));
    let receipt = world.ask("eagle").await;
    assert_eq!(told.recv().await, Some(None), "it holds the run");
    world.kill().await;
    world.work();
    let run = world.ended(COLLECT, "eagle:market", &receipt).await;
    assert_eq!((run.row.state, run.row.attempts), (RunState::Succeeded, 2));
    world.idle().await;
    let stored = (world.points("eagle").await, world.valued("eagle").await);
    world.market.offer(vec![vec![item("9", "Silver Eagle", "1.00")]]);
    wake.notify_one();
    let Some(Some(late)) = told.recv().await else { panic!("it has woken") };
    assert!(matches!(late.verdict, Verdict::Retry { .. }), "{late:?}");
    world.idle().await;
    assert_eq!((world.points("eagle").await, world.valued("eagle").await), stored);
    assert_eq!(world.market.asked(), ["1", "2", "3"], "and asks nobody");
}

/// Falls asleep with its run in hand, and goes on when it is woken, whoever has the run by then.
struct Asleep {
    inner: Arc<dyn Handler>,
    wake: Arc<Notify>,
    tell: mpsc::UnboundedSender<Option<Outcome>>,
}

#[async_trait]
impl Handler for Asleep {
    async fn handle(&self, run: &Run) -> Outcome {
        let (inner, wake, tell, run) =
            (self.inner.clone(), self.wake.clone(), self.tell.clone(), run.clone());
        let asleep = async move {
            tell.send(None).unwrap();
            wake.notified().await;
            tell.send(Some(inner.handle(&run).await)).unwrap();
        };
        // Apart from the worker, which drops what it has no lease for.
        tokio::spawn(asleep);
        std::future::pending().await
    }
}
