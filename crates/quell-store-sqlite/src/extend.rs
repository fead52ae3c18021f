//! Extend: the holder of a lease is alive.
//!
//! Only columns without an index are written; the lease index entry stays early and is pushed when it is reached. The
//! right to probe a source ends with the lease, so it moves with it.

use quell_core::error::{StoreError, StoreResult};
use quell_core::store::{ExtendRequest, Extended};

use crate::error::not_done;
use crate::rows::{at, number};
use crate::tx::Tx;

pub(crate) fn extend(tx: &mut Tx<'_, '_>, request: &ExtendRequest) -> StoreResult<Extended> {
    let lost = || StoreError::lost_lease(request.run_id, request.token);
    if !request.run_id.is_plausible() {
        return Err(lost());
    }
    let mut row = tx.lane(request.run_id.lane).map_err(|e| not_done(&e))?.ok_or_else(lost)?;
    let lane = &mut row.lane;
    let beat =
        lane.extend(tx.now, request.run_id.number, request.token, request.lease).map_err(|_| lost())?;
    let answer = Extended::from(beat);
    let probing = lane.current.as_ref().filter(|current| current.probe).and_then(|current| current.source);
    let values = [number(lane.id), at(lane.updated_at), at(answer.lease_until), at(lane.updated_at)];
    tx.execute(include_str!("../sql/extend_lane.sql"), values).map_err(|e| not_done(&e))?;
    if let Some(id) = probing {
        let (run, token, until) = (request.run_id, request.token, answer.lease_until);
        tx.change_source(id, |source| source.probe_extended(run, token, until)).map_err(|e| not_done(&e))?;
    }
    Ok(answer)
}
