//! Everything of one store in another, between any two stores: the promises are in `quell_store_tests::copy`.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up may panic")]

use std::sync::Arc;

use quell::copy::{Names, Phase, copy};
use quell::quell_core::clock::{ManualClock, Timestamp};
use quell::quell_core::copy::Portable;
use quell::quell_core::inspect::RunFilter;
use quell::quell_core::memory::MemoryStore;
use quell_store_sqlite::SqliteStore;
use quell_store_tests::copy::{self as promises, Side, Wrong};
use quell_store_tests::reads::all_runs;

/// Two empty stores.
struct Two {
    from: Side,
    to: Side,
    /// Of stores that are files.
    _folder: Option<tempfile::TempDir>,
}

fn memory() -> Two {
    let side = || {
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_700_000_000_000)));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let advance = move |by| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let clock = clock.clone();
            Box::pin(async move { clock.advance(by) })
        };
        Side { portable: store.clone(), store, advance: Box::new(advance) }
    };
    Two { from: side(), to: side(), _folder: None }
}

fn sqlite() -> Two {
    let folder = tempfile::tempdir().unwrap();
    let side = |name: &str| {
        let store = SqliteStore::open(&folder.path().join(name)).unwrap();
        let moved = store.clone();
        let advance = move |by| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let store = moved.clone();
            Box::pin(async move { store.advance(by).await.unwrap() })
        };
        Side { portable: store.clone(), store, advance: Box::new(advance) }
    };
    Two { from: side("from.db"), to: side("to.db"), _folder: Some(folder) }
}

/// The driver, as the promises want it.
pub(crate) fn copier<'a>(
    from: &'a dyn Portable,
    to: &'a dyn Portable,
) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, String>> + Send + 'a>> {
    Box::pin(async move {
        let names = Names { from: "the source".into(), to: "the target".into() };
        let mut told = Vec::new();
        let copied = copy(from, to, &names, &[], &mut |progress| told.push(progress)).await;
        assert!(told.iter().all(|progress| progress.done <= progress.of), "{told:?}");
        let copied = copied.map_err(|error| error.to_string())?;
        assert_eq!(told.last().map(|progress| progress.phase), Some(Phase::Verify));
        assert_eq!(copied.digests.lanes.len(), 64);
        Ok(copied.again)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_arrives_and_the_copy_works_at_once() {
    let two = sqlite();
    promises::everything_arrives_and_the_copy_works_at_once(&two.from, &two.to, &copier).await;
}

/// The meaning of a copy, where no database is in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_is_copied_like_every_other() {
    let two = memory();
    promises::everything_arrives_and_the_copy_works_at_once(&two.from, &two.to, &copier).await;
    let two = memory();
    promises::changes_between_the_passes_arrive(&two.from, &two.to, &copier).await;
    let two = memory();
    promises::a_copy_that_was_cut_short_goes_on(&two.from, &two.to, &copier).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_between_the_passes_arrive() {
    let two = sqlite();
    promises::changes_between_the_passes_arrive(&two.from, &two.to, &copier).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_cut_short_goes_on() {
    let two = sqlite();
    promises::a_copy_that_was_cut_short_goes_on(&two.from, &two.to, &copier).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_with_something_in_it_is_refused() {
    let two = sqlite();
    promises::a_target_with_something_in_it_is_refused(&two.from, &two.to, &copier).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_moved_is_not_copied_again() {
    let two = sqlite();
    promises::a_store_that_has_moved_is_not_copied_again(&two.from, &two.to, &copier).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_byte_is_found() {
    for kind in Wrong::ALL {
        let two = sqlite();
        promises::a_wrong_byte_is_found(&two.from, &two.to, &copier, kind).await;
    }
}

/// Runs end in the order of the source, also those of one millisecond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_ending_is_kept() {
    let two = sqlite();
    promises::fill(&*two.from.store).await;
    copier(&*two.from.portable, &*two.to.portable).await.unwrap();
    let ended = async |side: &Side| {
        let filter = RunFilter { limit: 500, ..RunFilter::default() };
        let runs = all_runs(&*side.store, filter).await;
        runs.into_iter().filter(|run| run.state.is_final()).map(|run| run.id).collect::<Vec<_>>()
    };
    assert_eq!(ended(&two.from).await, ended(&two.to).await);
}

/// A copy of another source, or one whose source was unsealed in the middle, is not continued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_same_copy_is_continued() {
    let two = sqlite();
    promises::fill(&*two.from.store).await;
    let (from, to): (Arc<dyn Portable>, Arc<dyn Portable>) =
        (two.from.portable.clone(), two.to.portable.clone());
    let spoiled = promises::Through::new(to.clone());
    spoiled.spoil(Wrong::Event);
    copier(&*from, &spoiled).await.unwrap_err();

    let names = Names { from: "another".into(), to: "the target".into() };
    let other = sqlite();
    let error = copy(&*other.from.portable, &*to, &names, &[], &mut |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("an unfinished copy of the source"), "{error}");
    let error = copier(&*to, &*other.to.portable).await.unwrap_err();
    assert!(error.contains("has not been finished"), "{error}");

    from.seal(None).await.unwrap();
    let error = copier(&*from, &*to).await.unwrap_err();
    assert!(error.contains("its seal was lifted") && error.contains("begin anew"), "{error}");
}
