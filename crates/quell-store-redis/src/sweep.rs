//! The retention and kept answers that are over, one bounded step each: a script of its own does it on the server, so
//! nothing can come in between.

use std::time::Duration;

use quell_core::error::StoreResult;
use quell_core::limits;
use quell_core::store::Swept;

use crate::error::strange;
use crate::link::For;
use crate::reply;
use crate::script::Script;
use crate::store::Shared;

pub(crate) async fn forget(shared: &Shared, retention: Duration, swept: &mut Swept) -> StoreResult<()> {
    let before = shared.link.now().await?.before(retention);
    let mut call = shared.link.script(Script::Forget);
    call.arg(before.as_millis()).arg(limits::RETENTION_RUNS_STEP).arg(limits::RETENTION_EVENTS_STEP);
    call.arg(limits::RETENTION_RUNS_STEP * 4);
    // Without an answer it is done once more: what has been removed is not there any more.
    let mut answer = reply::list(shared.link.read(For::Transactions, &call).await?)?.into_iter();
    let mut next = || answer.next().map_or_else(|| Err(strange("a count that is missing")), reply::count);
    swept.removed_runs += next()?;
    swept.removed_events += next()?;
    swept.removed_audit += next()?;
    swept.more |= next()? == 1;
    Ok(())
}

pub(crate) async fn forget_answers(shared: &Shared) -> StoreResult<bool> {
    let mut call = shared.link.script(Script::Answers);
    call.arg(limits::CACHE_SWEEP_STEP);
    Ok(reply::count(shared.link.read(For::Transactions, &call).await?)? == 1)
}
