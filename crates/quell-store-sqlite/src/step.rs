//! Step: what an attempt remembers for the next one, under (run, revision, name) and conditional on the token.

use quell_core::batch::RunId;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::limits;
use quell_core::store::{StepAction, StepAnswer, StepRequest, StepRow, too_many_steps};
use rusqlite::OptionalExtension;
use rusqlite::types::Value;

use crate::error::not_done;
use crate::rows::{at, maybe_text, number, small};
use crate::tx::Tx;

pub(crate) fn step(tx: &mut Tx<'_, '_>, request: &StepRequest) -> StoreResult<StepAnswer> {
    request.check()?;
    let (run, token) = (request.run_id, request.token);
    let lost = || StoreError::lost_lease(run, token);
    if !run.is_plausible() || token >= limits::NUMBER_MAX {
        return Err(lost());
    }
    let row = tx.lane(run.lane).map_err(|e| not_done(&e))?.ok_or_else(lost)?;
    let revision = row.lane.holder(run.number, token).ok_or_else(lost)?.revision;
    let known = find(tx, request, revision).map_err(|e| not_done(&e))?;
    if let Some((_, Some(text))) = &known {
        let value = serde_json::from_str(text).map_err(|_| {
            StoreError::new(ErrorKind::Corrupt, format!("the result of step {:?} is not JSON", request.name))
        })?;
        return Ok(StepAnswer::Done { value, stored: false });
    }
    let begun_by = known.map(|(by, _)| by);
    let (answer, value) = match &request.action {
        StepAction::Read | StepAction::Begin if begun_by.is_some_and(|by| by != token) => {
            return Ok(StepAnswer::Unknown);
        }
        StepAction::Read if begun_by.is_some() => return Ok(StepAnswer::Begun),
        StepAction::Read => return Ok(StepAnswer::New),
        StepAction::Begin => (StepAnswer::Begun, None),
        StepAction::Finish(value) => {
            (StepAnswer::Done { value: value.clone(), stored: true }, Some(value.clone()))
        }
    };
    if begun_by.is_none()
        && count(tx, request, revision).map_err(|e| not_done(&e))? >= limits::STEPS_MAX as u64
    {
        return Err(too_many_steps(run));
    }
    let row = StepRow { revision, name: request.name.clone(), at: tx.now, token, value };
    put_step(tx, run, &row).map_err(|e| not_done(&e))?;
    Ok(answer)
}

/// New, or in place of the one under the same name.
pub(crate) fn put_step(tx: &mut Tx<'_, '_>, run: RunId, row: &StepRow) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO step (lane_id, run, revision, name, at, token, value)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = [
        number(run.lane),
        number(run.number),
        small(row.revision),
        Value::Text(row.name.clone()),
        at(row.at),
        number(row.token),
        maybe_text(row.value.as_ref().map(ToString::to_string)),
    ];
    tx.execute(sql, values).map(|_| ())
}

type Known = Option<(u64, Option<String>)>;

fn find(tx: &mut Tx<'_, '_>, request: &StepRequest, revision: u32) -> rusqlite::Result<Known> {
    let sql = "SELECT token, value FROM step WHERE lane_id = ?1 AND run = ?2 AND revision = ?3 AND name = ?4";
    let (run, name) = (request.run_id, request.name.as_str());
    let mut statement = tx.connection.prepare_cached(sql)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    statement.query_row((run.lane, run.number, revision, name), read).optional()
}

fn count(tx: &mut Tx<'_, '_>, request: &StepRequest, revision: u32) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM step WHERE lane_id = ?1 AND run = ?2 AND revision = ?3";
    let run = request.run_id;
    tx.connection.prepare_cached(sql)?.query_row((run.lane, run.number, revision), |row| row.get(0))
}
