//! What an operator does to the events of one key: edit one, delete one, erase one or all of them.

use quell::Engine;
use quell::quell_core::event::{EventId, LaneKey};

use super::LaneArgs;
use crate::confirm::confirm;
use crate::context;
use crate::failure::{self, Failure};
use crate::output;
use crate::payload;
use crate::times;

/// One of them, checked.
pub(super) enum Change {
    Edit(EventId),
    Delete(EventId),
    EraseEvent(EventId),
    Erase,
}

impl Change {
    pub(super) fn of(args: &LaneArgs) -> Result<Option<Change>, Failure> {
        let asked = if let Some(id) = &args.edit_event {
            Change::Edit(EventId::new(id)?)
        } else if let Some(id) = &args.delete_event {
            Change::Delete(EventId::new(id)?)
        } else if let Some(id) = &args.erase_event {
            Change::EraseEvent(EventId::new(id)?)
        } else if args.erase {
            Change::Erase
        } else {
            return Ok(None);
        };
        Ok(Some(asked))
    }

    fn word(&self) -> &'static str {
        match self {
            Change::Edit(_) => "edit_event",
            Change::Delete(_) => "delete_event",
            Change::EraseEvent(_) => "erase_event",
            Change::Erase => "erase",
        }
    }

    fn event(&self) -> Option<&EventId> {
        match self {
            Change::Edit(id) | Change::Delete(id) | Change::EraseEvent(id) => Some(id),
            Change::Erase => None,
        }
    }
}

pub(super) async fn make(
    engine: &Engine,
    lane: LaneKey,
    change: Change,
    args: &LaneArgs,
) -> Result<u8, Failure> {
    context::known_queue(engine, &lane.queue).await?;
    let actor = context::actor(&args.by);
    let done = match &change {
        Change::Edit(id) => {
            let payload = payload::json(args.with.as_deref().unwrap_or("-"))?;
            engine.edit_event(lane.clone(), id.clone(), payload, &actor).await?
        }
        Change::Delete(id) => engine.delete_event(lane.clone(), id.clone(), &actor).await?,
        Change::EraseEvent(id) => {
            let this = format!(
                "delete event {id} of {lane} for good, and cancel a run that has it and has not ended"
            );
            confirm(&this, args.yes)?;
            engine.erase_event(lane.clone(), id.clone(), &actor).await?
        }
        Change::Erase => {
            let what =
                "payloads, ids, steps, errors and the key itself, in every state, cancelling what runs";
            confirm(&format!("delete everything of {lane} for good: {what}"), args.yes)?;
            engine.erase_lane(lane.clone(), &actor).await?
        }
    };
    let gone = matches!(change, Change::Erase | Change::EraseEvent(_));
    if gone && !done.changed {
        let what =
            change.event().map_or_else(|| format!("lane {lane}"), |id| format!("event {id} of {lane}"));
        return Err(Failure::new(failure::NOT_FOUND, format!("nothing is known of {what}"))
            .help("it never was there, or it has been erased before"));
    }
    if args.form.json {
        output::json(&serde_json::json!({
            "action": change.word(),
            "lane": lane,
            "event": change.event(),
            "changed": done.changed,
            "events": done.events,
        }))?;
        return Ok(0);
    }
    output::line(match &change {
        Change::Edit(id) if done.changed => {
            format!("changed the payload of {id} of {lane}; it keeps its place")
        }
        Change::Edit(id) => format!("{id} of {lane} has that payload already"),
        Change::Delete(id) => match done.run {
            Some(run) => format!("deleted {id} of {lane}; `quell redrive {run}` brings it back"),
            None => format!("deleted {id} of {lane}"),
        },
        Change::EraseEvent(id) => {
            format!("erased {id} of {lane} for good; it counts as discarded, the audit keeps its numbers")
        }
        Change::Erase => format!(
            "erased {lane} for good: {}, counted as discarded; the audit keeps its numbers, without the key",
            times::count(done.events, "event")
        ),
    })?;
    Ok(0)
}
