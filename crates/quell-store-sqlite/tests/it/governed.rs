//! Real processes that ask one source, on one file: the limit, the probe and the kept answers hold for all of them together.
//!
//! The stories are the suite's; this test binary starts itself again and runs one test, `a_process_with_an_errand`, which
//! does what it is told.

use std::path::Path;
use std::sync::Arc;

use quell_core::store::Store;
use quell_store_sqlite::SqliteStore;
use quell_store_tests::crash::governed::{self, Stage};

async fn open(place: &str) -> Arc<dyn Store> {
    SqliteStore::open(Path::new(place)).expect("the file opens while others use it")
}

fn stage(folder: &tempfile::TempDir) -> Stage<impl AsyncFn(&str) -> Arc<dyn Store>> {
    let place = folder.path().join("q.db").to_str().expect("temporary folders have plain names").to_owned();
    Stage { child: "governed::a_process_with_an_errand", place, open }
}

#[test]
fn a_process_with_an_errand() {
    governed::errand(open);
}

#[test]
fn four_processes_together_never_get_more_than_a_source_allows_in_any_window() {
    let folder = tempfile::tempdir().unwrap();
    governed::no_window_holds_more_than_burst_and_rate_allow(&stage(&folder), true);
}

#[test]
fn a_probe_whose_process_is_killed_frees_its_place_when_its_lease_is_over() {
    let folder = tempfile::tempdir().unwrap();
    governed::a_killed_probe_frees_its_place_when_its_lease_is_over(&stage(&folder));
}

#[test]
fn of_four_processes_that_want_one_answer_one_fetches_it() {
    let folder = tempfile::tempdir().unwrap();
    governed::one_process_fetches_and_the_others_have_its_answer(&stage(&folder));
}
