//! Hold: the gate before an effect. One transaction freezes the batch, or ends the attempt for newer events.

use quell_core::error::{StoreError, StoreResult};
use quell_core::lane::NotHolder;
use quell_core::lifecycle::RunState;
use quell_core::store::{Held, HoldRequest, held_before};

use crate::error::not_done;
use crate::settle::{Report, apply, settled_before};
use crate::tx::Tx;

pub(crate) fn hold(tx: &mut Tx<'_, '_>, request: &HoldRequest) -> StoreResult<Held> {
    let (run, token) = (request.run_id, request.token);
    let lost = || StoreError::lost_lease(run, token);
    if !run.is_plausible() || token >= quell_core::limits::NUMBER_MAX {
        return Err(lost());
    }
    // An erased lane is gone, but what its holders have said is still on record.
    let held = tx.lane(run.lane).map_err(|e| not_done(&e))?.ok_or(NotHolder).and_then(|mut row| {
        let source = row.lane.source();
        let held = row.lane.hold(tx.now, run.number, token, request.if_head)?;
        Ok((row, source, held))
    });
    match held {
        Ok((mut row, source, (answer, step))) => {
            let state = step.as_ref().and_then(|s| s.made.to).unwrap_or(RunState::Running);
            // A probe whose attempt is over has said nothing of its source: another lane may try.
            if let Some(id) = source.filter(|_| state != RunState::Running) {
                tx.change_source(id, |source| source.probe_lost(run, token)).map_err(|e| not_done(&e))?;
            }
            if let Some(step) = step {
                apply(tx, &mut row, step, &Report::default(), None).map_err(|e| not_done(&e))?;
            }
            Ok(Held { answer, state })
        }
        Err(NotHolder) => {
            let before = settled_before(tx, run, token).map_err(|e| not_done(&e))?.ok_or_else(lost)?;
            held_before(run, token, Some(before.verdict), before.change, Some(before.state))
        }
    }
}
