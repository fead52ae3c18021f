//! Real processes that ask one source, in one schema: the limit, the probe and the kept answers hold for all of them
//! together.
//!
//! The stories are the suite's; this test binary starts itself again and runs one test, `a_process_with_an_errand`, which
//! does what it is told.

use std::sync::Arc;

use quell_core::store::Store;
use quell_store_postgres::PostgresStore;
use quell_store_tests::crash::governed::{self, Stage};
use quell_test_servers::postgres_url;

use crate::world::{fresh_schema, run_sql, with};

async fn open(place: &str) -> Arc<dyn Store> {
    PostgresStore::open_url(place).await.expect("it opens")
}

/// A schema of its own, gone afterwards. One that a failed test leaves behind harms nobody.
struct Place(String);

impl Place {
    fn new() -> Place {
        Place(fresh_schema())
    }

    fn stage(&self) -> Stage<impl AsyncFn(&str) -> Arc<dyn Store>> {
        let place = with(&postgres_url(), &self.0, "");
        Stage { child: "governed::a_process_with_an_errand", place, open }
    }

    fn gone(self) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a thread can have a runtime");
        runtime.block_on(run_sql(&postgres_url(), &format!("DROP SCHEMA {} CASCADE", self.0)));
    }
}

#[test]
fn a_process_with_an_errand() {
    governed::errand(open);
}

#[test]
fn four_processes_together_never_get_more_than_a_source_allows_in_any_window() {
    let place = Place::new();
    // A claim reads its time before it waits for its source.
    governed::no_window_holds_more_than_burst_and_rate_allow(&place.stage(), false);
    place.gone();
}

#[test]
fn a_probe_whose_process_is_killed_frees_its_place_when_its_lease_is_over() {
    let place = Place::new();
    governed::a_killed_probe_frees_its_place_when_its_lease_is_over(&place.stage());
    place.gone();
}

#[test]
fn of_four_processes_that_want_one_answer_one_fetches_it() {
    let place = Place::new();
    governed::one_process_fetches_and_the_others_have_its_answer(&place.stage());
    place.gone();
}
