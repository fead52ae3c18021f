//! Each verb once, between marks that a profiler sees: what the test `counts` runs under callgrind and under strace.
//!
//! Of SQLite it tells the statements and transactions of each verb, too.
//!
//! Usage: `quell-bench-verbs memory` (the decisions alone) or `quell-bench-verbs URL` (an empty store).

use quell_bench::verbs::{Verb, Verbs};

/// One thread, so that callers meet in the same way each time.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Some(place) = std::env::args().nth(1) else {
        anyhow::bail!("say what to count: `memory` or the URL of an empty store");
    };
    let mut verbs = match place.as_str() {
        "memory" => Verbs::in_memory().await?,
        url => {
            quell_store_sqlite::count_statements();
            Verbs::open(url).await?
        }
    };
    // Decisions of one call are those of many callers; what meets there is a matter of the databases.
    for verb in Verb::ALL.into_iter().filter(|verb| place != "memory" || !verb.is_concurrent()) {
        if place == "memory" {
            // It finds lanes by looking at all of them, also at those that are done.
            verbs = Verbs::in_memory().await?;
        }
        verbs.prepare(verb).await?;
        println!("begins\t{}", verb.name());
        let before = quell_store_sqlite::counted();
        mark();
        let units = verbs.perform(verb).await?;
        mark();
        let now = quell_store_sqlite::counted();
        println!("{units}\t{}\t{}\t{}", verb.name(), now.0 - before.0, now.1 - before.1);
    }
    Ok(())
}

/// A profiler ends a part whenever this is called; it does nothing else.
#[inline(never)]
fn mark() {
    std::hint::black_box(());
}
