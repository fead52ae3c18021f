//! Real processes that ask one source, under one prefix: the limit, the probe and the kept answers hold for all of them
//! together.
//!
//! The stories are the suite's; this test binary starts itself again and runs one test, `a_process_with_an_errand`, which
//! does what it is told.

use std::sync::Arc;

use quell_core::store::Store;
use quell_store_redis::{Options, RedisStore};
use quell_store_tests::crash::governed::{self, Stage};
use quell_test_servers::redis_url;

use crate::contract::fresh_prefix;

/// A prefix of the server that all tests share.
async fn open(prefix: &str) -> Arc<dyn Store> {
    let options = Options::parse(&redis_url()).expect("the server's address is one");
    let options = options.with_prefix(prefix).expect("a prefix of letters and digits");
    RedisStore::open(options).await.expect("the store opens")
}

fn stage() -> Stage<impl AsyncFn(&str) -> Arc<dyn Store>> {
    Stage { child: "governed::a_process_with_an_errand", place: fresh_prefix(), open }
}

#[test]
fn a_process_with_an_errand() {
    governed::errand(open);
}

#[test]
fn four_processes_together_never_get_more_than_a_source_allows_in_any_window() {
    // A claim reads its time before it reads its source.
    governed::no_window_holds_more_than_burst_and_rate_allow(&stage(), false);
}

#[test]
fn a_probe_whose_process_is_killed_frees_its_place_when_its_lease_is_over() {
    governed::a_killed_probe_frees_its_place_when_its_lease_is_over(&stage());
}

#[test]
fn of_four_processes_that_want_one_answer_one_fetches_it() {
    governed::one_process_fetches_and_the_others_have_its_answer(&stage());
}
