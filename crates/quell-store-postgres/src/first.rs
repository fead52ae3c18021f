//! First: the first event of a new lane lies in the lane's own row.
//!
//! A row of `event_row` has entries in two indexes, which cost more than the row. Most jobs are lanes with one event, so the
//! first event of a lane is written with the lane, if it is small and has nothing unusual, and a claim has it when it has the
//! lane. Where an event lies is known here and to the database: whoever reads asks the view `event`, which shows both, and rare
//! changes go through its triggers (`migrations/0007_first_events.sql`).
//!
//! What lies with its lane is the event with the smallest number that the lane ever had, or nothing. A copy puts its rows in
//! place page by page and again after a fault, so there all events are rows of `event_row`.

use std::collections::HashMap;
use std::sync::Arc;

use quell_core::error::StoreResult;
use quell_core::event::{Event, EventId, Fingerprint, Headers, Payload};
use quell_core::working_set::Kept;
use quell_store_rows::changes::Changes;
use quell_store_rows::rows::Span;
use tokio_postgres::Row;

use crate::error::unreadable;
use crate::rows::{get, maybe_count, time};

/// The largest payload that lies with its lane. A running lane has some 900 bytes beside it, and a row of more than 2 KB would be
/// compressed or kept elsewhere by the server.
const PAYLOAD_MAX: usize = 512;

/// The columns of [`read`], of a lane `l`.
macro_rules! first_columns {
    () => {
        "l.first_seq, l.first_at, l.first_priority, l.first_id, l.first_print, l.first_payload"
    };
}
pub(crate) use first_columns;

/// Events of one lane that meet a condition (on `e`, with the columns of the view), no more than these from either place. Whoever
/// wants the first of them in order asks for both places by themselves: the view would be read to its end and sorted, however
/// many events the lane has, because plans are made when it has none.
macro_rules! events_of_lane {
    ($lane:literal, $condition:literal, $most:literal) => {
        concat!(
            "(SELECT lane_id, seq, received_at, mark, was_seq, priority, id, print, headers, payload, source
              FROM quell.event_row e WHERE e.lane_id = ",
            $lane,
            " AND ",
            $condition,
            " ORDER BY e.seq LIMIT ",
            $most,
            ") UNION ALL SELECT * FROM (
               SELECT id AS lane_id, first_seq AS seq, first_at AS received_at, NULL::bigint AS mark,
                 NULL::bigint AS was_seq, first_priority AS priority, first_id AS id, first_print AS print,
                 NULL::text AS headers, first_payload AS payload, NULL::bigint AS source
               FROM quell.lane WHERE id = ",
            $lane,
            " AND first_seq IS NOT NULL) e WHERE ",
            $condition
        )
    };
}
pub(crate) use events_of_lane;

/// Which of the new events lie with their lanes, by the lanes.
#[derive(Default)]
pub(crate) struct Firsts<'c>(HashMap<u64, &'c Arc<Kept>>);

impl<'c> Firsts<'c> {
    pub(crate) fn of(changes: &'c Changes) -> Self {
        let new = changes.lanes.iter().filter(|write| write.was.is_none());
        let mut firsts: HashMap<u64, Option<&Arc<Kept>>> = new.map(|write| (write.lane.id, None)).collect();
        for (lane, kept) in &changes.new_events {
            if let Some(first) = firsts.get_mut(lane)
                && first.is_none_or(|known| kept.event.seq < known.event.seq)
            {
                *first = Some(kept);
            }
        }
        let lying =
            firsts.into_iter().filter_map(|(lane, first)| Some((lane, first.filter(|k| is_plain(k))?)));
        Firsts(lying.collect())
    }

    pub(crate) fn of_lane(&self, lane: u64) -> Option<&'c Kept> {
        self.0.get(&lane).map(|kept| &***kept)
    }

    pub(crate) fn has(&self, lane: u64, kept: &Kept) -> bool {
        self.of_lane(lane).is_some_and(|first| first.event.seq == kept.event.seq)
    }
}

fn is_plain(kept: &Kept) -> bool {
    let own = kept.mark.is_none() && kept.event.was_seq.is_none() && kept.source.is_none();
    own && kept.event.headers.is_empty() && kept.event.payload.len() <= PAYLOAD_MAX
}

/// The first event of a lane, if it lies in its row.
pub(crate) fn read(row: &Row, at: usize) -> StoreResult<Option<Kept>> {
    let Some(seq) = maybe_count(row, at)? else { return Ok(None) };
    let (priority, print): (i16, &[u8]) = (get(row, at + 2)?, get(row, at + 4)?);
    let event = Event {
        seq,
        id: EventId::new(get::<&str>(row, at + 3)?).map_err(unreadable)?,
        received_at: time(row, at + 1)?,
        payload: Payload::from_stored(get(row, at + 5)?),
        headers: Headers::new(),
        was_seq: None,
    };
    Ok(Some(Kept {
        event,
        mark: None,
        priority: u8::try_from(priority).map_err(unreadable)?,
        print: Fingerprint(print.try_into().map_err(unreadable)?),
        source: None,
    }))
}

/// Whether the first event of a lane is in this span: then it is the first of it.
pub(crate) fn begins(span: &Span, first: &Kept) -> bool {
    span.most > 0 && span.mark.is_none() && (span.from..=span.upto).contains(&first.event.seq)
}

/// What is still to be read of a span that begins with the first event of its lane.
pub(crate) fn rest(span: &Span, first: &Kept) -> Option<Span> {
    let most = span.most.checked_sub(1).filter(|most| *most > 0)?;
    let bytes = match span.bytes {
        None => None,
        Some(bytes) => Some(bytes.checked_sub(first.event.payload.len() as u64).filter(|left| *left > 0)?),
    };
    Some(Span { from: first.event.seq + 1, most, bytes, ..span.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(seq: u64, payload: &str) -> Kept {
        let payload = Payload::from_stored(payload);
        let print = payload.fingerprint();
        let id = EventId::new(format!("e{seq}")).unwrap();
        let headers = Headers::new();
        let event = Event { seq, id, received_at: Default::default(), payload, headers, was_seq: None };
        Kept { event, mark: None, priority: 4, print, source: None }
    }

    #[test]
    fn only_what_is_plain_and_small_lies_with_its_lane() {
        assert!(is_plain(&kept(1, "1")));
        assert!(!is_plain(&Kept { mark: Some(7), ..kept(1, "1") }));
        assert!(!is_plain(&kept(1, &format!("\"{}\"", "x".repeat(PAYLOAD_MAX)))));
    }

    #[test]
    fn a_span_that_begins_with_it_is_read_from_the_second_on() {
        let span = Span { lane: 1, from: 5, upto: 9, mark: None, most: 3, bytes: None };
        assert!(begins(&span, &kept(5, "1")) && begins(&span, &kept(9, "1")));
        assert!(!begins(&span, &kept(4, "1")) && !begins(&span, &kept(10, "1")));
        assert!(!begins(&Span { mark: Some(3), ..span.clone() }, &kept(5, "1")));
        assert_eq!(rest(&span, &kept(6, "1")), Some(Span { from: 7, most: 2, ..span.clone() }));
        assert_eq!(rest(&Span { most: 1, ..span.clone() }, &kept(6, "1")), None, "it is all that is wanted");
        let heavy = |bytes| Span { bytes: Some(bytes), ..span.clone() };
        assert_eq!(rest(&heavy(5), &kept(6, "123")).and_then(|rest| rest.bytes), Some(2));
        assert_eq!(rest(&heavy(3), &kept(6, "123")), None, "it weighs enough by itself");
    }
}
