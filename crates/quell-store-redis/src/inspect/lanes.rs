//! Listings of lanes, and one lane in full.
//!
//! Lanes with something to do are found in stages: those held by workers by the set of leases, those that wait by the
//! sets of due times, one priority after the other, and those that an operator paused or a failed run blocked by a set of
//! their own. A lane that is in an earlier stage is passed over in a later one. Of due times each queue has a set for
//! lanes without a source, and one for each source that its lanes wait for.

use std::collections::BTreeSet;

use quell_core::error::StoreResult;
use quell_core::event::{LaneKey, QueueName, Tenant};
use quell_core::inspect::{LaneDetail, LaneFilter, LaneRow, Page, Waiting};
use quell_core::limits;
use quell_core::source::SourceId;
use quell_store_rows::rows::Span;

use super::View;
use super::cursor::{hex, unhex};
use crate::keys::{Keys, queue_text};
use crate::reply;
use crate::rows::LaneValue;

/// Rows that one page of a filtered walk looks at before it hands out a cursor.
const LOOK_MAX: usize = 20_000;
/// Rows that one command of a walk reads.
const CHUNK: usize = 256;

/// One after the other: leases, due times from the highest priority down, holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Leased,
    Due(u8),
    Held,
}

impl Stage {
    const COUNT: usize = limits::PRIORITY_MAX as usize + 3;

    fn nth(n: usize) -> Stage {
        match u8::try_from(n) {
            Ok(0) => Stage::Leased,
            Ok(n) if n <= limits::PRIORITY_MAX + 1 => Stage::Due(limits::PRIORITY_MAX + 1 - n),
            _ => Stage::Held,
        }
    }

    /// Where lanes of this stage are; nothing when the stage has no set for this place.
    fn set(self, keys: &Keys, (queue, source): &Place) -> Option<String> {
        match self {
            Stage::Due(priority) => Some(keys.due(priority, *source, queue)),
            Stage::Leased | Stage::Held if source.is_some() => None,
            Stage::Leased => Some(keys.lease(queue)),
            Stage::Held => Some(keys.held(queue)),
        }
    }

    /// Whether a lane that is in the set of this stage was not in an earlier one.
    fn is_of(self, lane: &LaneValue, source: Option<SourceId>) -> bool {
        let entries = &lane.at.entries;
        match self {
            Stage::Leased => true,
            Stage::Due(priority) => {
                entries.lease.is_none() && (entries.priority, entries.source) == (priority, source)
            }
            Stage::Held => entries.lease.is_none() && entries.due.is_none(),
        }
    }
}

/// A queue, and a source that its lanes wait for.
type Place = (String, Option<SourceId>);

/// Which lanes a walk visits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lanes {
    Running,
    Busy,
}

/// How far a walk over the stages has come: the last lane that was visited, and its score.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Walk {
    stage: usize,
    place: Place,
    score: i64,
    id: u64,
}

impl Walk {
    fn start() -> Walk {
        Walk { stage: 0, place: (String::new(), None), score: i64::MIN, id: 0 }
    }

    pub(super) fn parse(text: &str) -> Option<Walk> {
        let mut parts = text.split('.');
        let mut part = || parts.next();
        let stage = part()?;
        let (stage, source) = match stage.split_once('s') {
            Some((stage, source)) => (stage, Some(SourceId(source.parse().ok()?))),
            None => (stage, None),
        };
        // A queue is shown as the lane of an empty key.
        let queue = match part()? {
            "" => String::new(),
            queue => unhex(queue)?.strip_suffix('\0')?.to_owned(),
        };
        let walk = Walk {
            stage: stage.parse().ok()?,
            place: (queue, source),
            score: part()?.parse().ok()?,
            id: part()?.parse().ok().filter(|id| *id < limits::NUMBER_MAX)?,
        };
        part().is_none().then_some(walk)
    }

    pub(super) fn text(&self) -> String {
        let (queue, source) = &self.place;
        let queue = if queue.is_empty() { String::new() } else { hex(&format!("{queue}\0")) };
        let source = source.map_or_else(String::new, |source| format!("s{source}"));
        format!("{}{source}.{queue}.{}.{}", self.stage, self.score, self.id)
    }

    pub(super) fn from_cursor(cursor: Option<&str>) -> Walk {
        cursor.and_then(Walk::parse).unwrap_or_else(Walk::start)
    }
}

/// A walk that is under way: a lane at a time, read in chunks.
pub(super) struct Steps {
    places: Vec<Place>,
    stages: usize,
    at: Walk,
    /// Which of the places.
    nth: usize,
    /// The rank of the next lane in the set; nothing when it is to be found by the last lane visited.
    rank: Option<usize>,
    read: std::collections::VecDeque<(LaneValue, i64)>,
    more: bool,
}

impl Steps {
    pub(super) fn new(view: &View<'_>, queues: &[(Tenant, QueueName)], start: Walk, which: Lanes) -> Steps {
        let of_queue = |(tenant, queue): &(Tenant, QueueName)| {
            let queue = queue_text(tenant, queue);
            let sources: BTreeSet<_> = view.due_sets(&queue).map(|(_, source)| source).collect();
            sources.into_iter().map(move |source| (queue.clone(), source))
        };
        let places: Vec<Place> = queues.iter().flat_map(of_queue).collect();
        let resumed = !start.place.0.is_empty();
        let nth = places.iter().position(|place| *place >= start.place).unwrap_or(places.len());
        let same = places.get(nth).is_some_and(|place| *place == start.place);
        Steps {
            stages: if which == Lanes::Running { 1 } else { Stage::COUNT },
            rank: (!resumed || !same).then_some(0),
            nth,
            at: start,
            places,
            read: std::collections::VecDeque::new(),
            more: true,
        }
    }

    /// The next lane and the walk up to it.
    pub(super) async fn next(&mut self, view: &View<'_>) -> StoreResult<Option<(LaneValue, Walk)>> {
        loop {
            if let Some((lane, score)) = self.read.pop_front() {
                let place = self.places[self.nth].clone();
                self.at = Walk { stage: self.at.stage, place, score, id: lane.at.lane.id };
                return Ok(Some((lane, self.at.clone())));
            }
            if !self.more {
                self.nth += 1;
                (self.rank, self.more) = (Some(0), true);
            }
            if self.nth >= self.places.len() {
                self.nth = 0;
                self.at.stage += 1;
            }
            if self.at.stage >= self.stages || self.places.is_empty() {
                return Ok(None);
            }
            self.read_on(view).await?;
        }
    }

    async fn read_on(&mut self, view: &View<'_>) -> StoreResult<()> {
        let stage = Stage::nth(self.at.stage);
        let place = &self.places[self.nth];
        let Some(set) = stage.set(&view.shared.link.keys, place) else {
            self.more = false;
            return Ok(());
        };
        let rank = match self.rank {
            Some(rank) => rank,
            None => view.rank_behind(&set, &self.at).await?,
        };
        let mut command = redis::cmd("ZRANGE");
        command.arg(&set).arg(rank).arg(rank + CHUNK - 1).arg("WITHSCORES");
        let mut found = reply::list(view.shared.plain(&command).await?)?.into_iter();
        let (mut names, mut scores) = (Vec::new(), std::collections::HashMap::new());
        while let (Some(name), Some(score)) = (found.next(), found.next()) {
            let name = reply::text(name).unwrap_or_default();
            scores.insert(name.clone(), reply::number(score)?);
            names.push(name);
        }
        self.more = names.len() == CHUNK;
        self.rank = Some(rank + names.len());
        for lane in view.shared.lanes_named(&names).await? {
            if stage.is_of(&lane, place.1) {
                let score = scores.get(&lane.at.lane.id.to_string()).copied().unwrap_or(0);
                self.read.push_back((lane, score));
            }
        }
        Ok(())
    }
}

impl View<'_> {
    /// Where a set goes on behind this lane; if it is not in it any more, where its score was.
    async fn rank_behind(&self, set: &str, at: &Walk) -> StoreResult<usize> {
        let mut rank = redis::cmd("ZRANK");
        rank.arg(set).arg(at.id);
        if let redis::Value::Int(rank) = self.shared.plain(&rank).await? {
            return Ok(usize::try_from(rank).unwrap_or(0) + 1);
        }
        let mut count = redis::cmd("ZCOUNT");
        count.arg(set).arg("-inf").arg(format!("({}", at.score));
        Ok(usize::try_from(reply::count(self.shared.plain(&count).await?)?).unwrap_or(usize::MAX))
    }

    pub(super) async fn lane_detail(&self, key: &LaneKey) -> StoreResult<Option<LaneDetail>> {
        let Some(value) = self.find_lane(key).await? else { return Ok(None) };
        let lane = &value.at.lane;
        let paused = self.paused_by(&key.tenant, &key.queue);
        let mut delayed = redis::cmd("ZCARD");
        delayed.arg(self.shared.link.keys.aside_of(&crate::keys::lane_text(key)));
        let delayed = reply::count(self.shared.plain(&delayed).await?)?;
        // A full lane may hold gigabytes; a page of it is enough to see what it is.
        let most = limits::PAGE_DEFAULT as u64;
        let events = match lane.open {
            Some(open) => {
                let (from, upto) = (open.lo, lane.head_seq);
                self.span(Span { lane: lane.id, from, upto, mark: None, most, bytes: None }).await?
            }
            None => Vec::new(),
        };
        let source = self.shared.sources_of(lane.source().into_iter()).await?.into_values().next();
        Ok(Some(LaneDetail {
            row: LaneRow::of(lane, key, self.now, paused.clone(), source.as_ref()),
            now: self.now,
            waiting: Waiting::of(lane, self.now, paused, source.as_ref()),
            open_run: lane.open.map(|o| lane.run_id(o.number)),
            current_run: lane.current.as_ref().map(|c| lane.run_id(c.number)),
            queued_runs: lane.queued.iter().map(|c| lane.run_id(c.number)).collect(),
            delayed,
            events,
        }))
    }

    pub(super) async fn lanes(&self, filter: &LaneFilter) -> StoreResult<Page<LaneRow>> {
        let limit = page_limit(filter.limit);
        if filter.idle || filter.key_prefix.is_some() {
            return self.lanes_by_key(filter, limit).await;
        }
        let queues = self.matching(filter.tenant.as_ref(), filter.queue.as_ref());
        let start = Walk::from_cursor(filter.cursor.as_deref());
        let which = if filter.running { Lanes::Running } else { Lanes::Busy };
        let (mut items, mut last) = (Vec::new(), start.clone());
        let mut steps = Steps::new(self, &queues, start, which);
        while let Some((lane, at)) = steps.next(self).await? {
            if items.len() == limit {
                return self.listed(&items, Some(last.text())).await;
            }
            items.push(lane);
            last = at;
        }
        self.listed(&items, None).await
    }

    async fn lanes_by_key(&self, filter: &LaneFilter, limit: usize) -> StoreResult<Page<LaneRow>> {
        let prefix = filter.key_prefix.as_deref().unwrap_or_default();
        let cursor = filter.cursor.as_deref().and_then(unhex);
        let names = self.shared.link.keys.of("names");
        let (mut items, mut looked, mut last) = (Vec::new(), 0, cursor.clone());
        for (tenant, queue) in self.matching(filter.tenant.as_ref(), filter.queue.as_ref()) {
            let queue = format!("{}\0", queue_text(&tenant, &queue));
            let start = format!("{queue}{prefix}");
            let mut from = match &cursor {
                // The last one that was listed is of this queue, or of one behind it.
                Some(last) if last.starts_with(&queue) => format!("({last}"),
                Some(last) if *last > queue => continue,
                _ => format!("[{start}"),
            };
            loop {
                let mut command = redis::cmd("ZRANGEBYLEX");
                command.arg(&names).arg(&from).arg("+").arg("LIMIT").arg(0).arg(CHUNK);
                let found = reply::list(self.shared.plain(&command).await?)?;
                let texts: Vec<String> = found.into_iter().filter_map(reply::text).collect();
                let full = texts.len() == CHUNK;
                let of_queue: Vec<String> =
                    texts.into_iter().take_while(|text| text.starts_with(&start)).collect();
                let past = of_queue.len() < CHUNK;
                let lanes = self.shared.rows_of("key", &of_queue).await?;
                let ids: Vec<String> =
                    lanes.into_iter().filter_map(|id| String::from_utf8(id).ok()).collect();
                for value in self.shared.lanes_named(&ids).await? {
                    if items.len() == limit || looked == LOOK_MAX {
                        return self.listed(&items, last.as_deref().map(hex)).await;
                    }
                    looked += 1;
                    last = Some(crate::keys::lane_text(&value.at.key));
                    let lane = &value.at.lane;
                    let busy = !lane.is_idle() || lane.paused.is_some() || lane.blocked.is_some();
                    if (filter.idle || busy) && (!filter.running || lane.lease_at().is_some()) {
                        items.push(value);
                    }
                }
                match of_queue.last() {
                    Some(text) if full && !past => from = format!("({text}"),
                    _ => break,
                }
            }
        }
        self.listed(&items, None).await
    }

    /// Lanes as they are shown, with what the sources say that they ask next.
    async fn listed(&self, lanes: &[LaneValue], next: Option<String>) -> StoreResult<Page<LaneRow>> {
        let asked = lanes.iter().filter_map(|value| value.at.lane.source());
        let sources = self.shared.sources_of(asked).await?;
        let row = |value: &LaneValue| {
            let (key, lane) = (&value.at.key, &value.at.lane);
            let source = lane.source().and_then(|id| sources.get(&id));
            LaneRow::of(lane, key, self.now, self.paused_by(&key.tenant, &key.queue), source)
        };
        Ok(Page { items: lanes.iter().map(row).collect(), next })
    }
}

pub(super) fn page_limit(limit: usize) -> usize {
    if limit == 0 { limits::PAGE_DEFAULT } else { limit.min(limits::PAGE_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_is_a_stage_of_its_own() {
        let stages: Vec<Stage> = (0..Stage::COUNT).map(Stage::nth).collect();
        assert_eq!(stages[0], Stage::Leased);
        assert_eq!(stages[Stage::COUNT - 1], Stage::Held);
        let due: Vec<Stage> = (0..=limits::PRIORITY_MAX).rev().map(Stage::Due).collect();
        assert_eq!(stages[1..Stage::COUNT - 1], due);
    }

    #[test]
    fn cursors_come_back_as_they_were() {
        for (queue, source) in [("", None), ("\0mail", Some(SourceId(9))), ("a.b\0mail", None)] {
            let walk = Walk { stage: 7, place: (queue.to_owned(), source), score: -5, id: 42 };
            assert_eq!(Walk::parse(&walk.text()), Some(walk));
        }
        for bad in
            ["", "1", "1.2.3", "a.b.c.d", "1s..2.3", "s1..2.3", "1..3.18446744073709551615", "1..2.3.4"]
        {
            assert_eq!(Walk::parse(bad), None, "{bad}");
        }
    }
}
