//! Pages over all databases: merged in the order of the listing, and continued where each database was left.
//!
//! A cursor holds one place for each database: its own cursor, nothing before its first row, or that it has no more. A database
//! gives a cursor only for the end of a page; so one whose page was not used up is asked once more for just the rows that were.

use std::cmp::Ordering;

use futures_util::future::{OptionFuture, join_all};
use quell_core::audit::AuditRecord;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::inspect::{
    AuditFilter, Inspect, Inspected, LaneFilter, LaneRow, Page, RunFilter, RunRow, SourceFilter, SourceRow,
};
use quell_core::lifecycle::Change;
use quell_core::limits;

use super::add_source;
use crate::ManyStore;

/// Where a database was left.
#[derive(Debug, Clone, PartialEq)]
enum Place {
    Begin,
    At(String),
    End,
}

impl ManyStore {
    pub(super) async fn lanes(&self, filter: LaneFilter) -> StoreResult<Page<LaneRow>> {
        // A listing of all lanes goes by key; one of those that have something to do has no order that all stores share.
        let by_key = filter.idle || filter.key_prefix.is_some();
        let order =
            move |a: &LaneRow, b: &LaneRow| if by_key { a.lane.cmp(&b.lane) } else { Ordering::Equal };
        let (cursor, limit) = (filter.cursor.clone(), filter.limit);
        let ask = |cursor, limit| Inspect::Lanes(LaneFilter { cursor, limit, ..filter.clone() });
        let read = |answer| match answer {
            Inspected::Lanes(page) => Some(page),
            _ => None,
        };
        self.merged(cursor, limit, ask, read, order).await.map(of_any)
    }

    pub(super) async fn runs(&self, filter: RunFilter) -> StoreResult<Page<RunRow>> {
        // What is going on first, then what ended, the latest end first.
        let order = |a: &RunRow, b: &RunRow| match (a.completed_at, b.completed_at) {
            (Some(at), Some(other)) => (other, b.id.number).cmp(&(at, a.id.number)),
            (at, other) => at.is_some().cmp(&other.is_some()),
        };
        let (cursor, limit) = (filter.cursor.clone(), filter.limit);
        let ask = |cursor, limit| Inspect::Runs(RunFilter { cursor, limit, ..filter.clone() });
        let read = |answer| match answer {
            Inspected::Runs(page) => Some(page),
            _ => None,
        };
        self.merged(cursor, limit, ask, read, order).await.map(of_any)
    }

    pub(super) async fn audit(&self, filter: AuditFilter) -> StoreResult<Page<AuditRecord>> {
        let order = |a: &AuditRecord, b: &AuditRecord| (b.at, b.id).cmp(&(a.at, a.id));
        let (cursor, limit) = (filter.cursor.clone(), filter.limit);
        let ask = |cursor, limit| Inspect::Audit(AuditFilter { cursor, limit, ..filter.clone() });
        let read = |answer| match answer {
            Inspected::Audit(page) => Some(page),
            _ => None,
        };
        // What was done in all databases alike is told once.
        let told = |database: usize, record: &AuditRecord| database == 0 || !is_of_all(record);
        let Page { items, next } = self.merged(cursor, limit, ask, read, order).await?;
        let items =
            items.into_iter().filter(|(database, record)| told(*database, record)).map(|(_, record)| record);
        Ok(Page { items: items.collect(), next })
    }

    /// The rows of one source in several databases are one row.
    pub(super) async fn sources(&self, filter: SourceFilter) -> StoreResult<Page<SourceRow>> {
        let (skip, limit) = (whole_number(filter.cursor.as_deref())?, page_limit(filter.limit));
        let mut all: Vec<SourceRow> = Vec::new();
        for member in &self.members {
            let mut cursor = None;
            loop {
                let asked = SourceFilter { cursor, limit: limits::PAGE_MAX, ..filter.clone() };
                let Inspected::Sources(page) = member.inspect(Inspect::Sources(asked)).await? else { break };
                for row in page.items {
                    match all
                        .iter_mut()
                        .find(|known| (&known.name, &known.tenant) == (&row.name, &row.tenant))
                    {
                        Some(known) => add_source(known, row),
                        None => all.push(row),
                    }
                }
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        all.sort_by(|a, b| (&a.name, &a.tenant).cmp(&(&b.name, &b.tenant)));
        let more = all.len() > skip + limit;
        let items = all.into_iter().skip(skip).take(limit).collect();
        Ok(Page { items, next: more.then(|| (skip + limit).to_string()) })
    }

    async fn merged<T>(
        &self,
        cursor: Option<String>,
        limit: usize,
        ask: impl Fn(Option<String>, usize) -> Inspect,
        read: impl Fn(Inspected) -> Option<Page<T>>,
        order: impl Fn(&T, &T) -> Ordering,
    ) -> StoreResult<Page<(usize, T)>> {
        let (mut places, limit) = (places(cursor.as_deref(), self.members.len())?, page_limit(limit));
        let mut asked = Vec::new();
        for (member, place) in self.members.iter().zip(&places) {
            let answer = match place {
                Place::End => None,
                Place::Begin => Some(member.inspect(ask(None, limit))),
                Place::At(cursor) => Some(member.inspect(ask(Some(cursor.clone()), limit))),
            };
            asked.push(OptionFuture::from(answer));
        }
        let (mut rows, mut nexts): (Vec<Vec<T>>, Vec<Option<String>>) = (Vec::new(), Vec::new());
        for answer in join_all(asked).await {
            let page = answer.transpose()?.and_then(&read);
            let page = page.unwrap_or(Page { items: Vec::new(), next: None });
            rows.push(page.items);
            nexts.push(page.next);
        }
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let more: Vec<bool> = nexts.iter().map(Option::is_some).collect();
        let (items, used) = merge(rows, &more, limit, order);
        for (n, place) in places.iter_mut().enumerate().filter(|(_, place)| **place != Place::End) {
            if used[n] == lengths[n] {
                *place = nexts[n].clone().map_or(Place::End, Place::At);
            } else if used[n] > 0 {
                let before = match &*place {
                    Place::At(cursor) => Some(cursor.clone()),
                    _ => None,
                };
                let page = read(self.members[n].inspect(ask(before, used[n])).await?);
                *place = page.and_then(|page| page.next).map_or(Place::End, Place::At);
            }
        }
        let next = places.iter().any(|place| *place != Place::End).then(|| written(&places));
        Ok(Page { items, next })
    }
}

/// Takes rows in order until there are enough, or until nobody knows what the next one of a database is. Also says how many
/// were taken of each.
fn merge<T>(
    rows: Vec<Vec<T>>,
    more: &[bool],
    limit: usize,
    order: impl Fn(&T, &T) -> Ordering,
) -> (Vec<(usize, T)>, Vec<usize>) {
    let mut used = vec![0; rows.len()];
    let mut rows: Vec<_> = rows.into_iter().map(|rows| rows.into_iter().peekable()).collect();
    let mut items = Vec::new();
    while items.len() < limit {
        let mut best: Option<usize> = None;
        for (n, more) in more.iter().enumerate() {
            let (before, after) = rows.split_at_mut(n);
            let Some(row) = after[0].peek() else {
                // Its next row may come before all others.
                if *more {
                    return (items, used);
                }
                continue;
            };
            let first = match best {
                None => true,
                Some(b) => before[b].peek().is_some_and(|first| order(row, first) == Ordering::Less),
            };
            if first {
                best = Some(n);
            }
        }
        let Some(best) = best else { break };
        items.extend(rows[best].next().map(|row| (best, row)));
        used[best] += 1;
    }
    (items, used)
}

fn of_any<T>(page: Page<(usize, T)>) -> Page<T> {
    Page { items: page.items.into_iter().map(|(_, item)| item).collect(), next: page.next }
}

/// Whether a record tells of a hand that was laid on every database: on a queue, or on a source.
fn is_of_all(record: &AuditRecord) -> bool {
    record.queue.is_of_sources() || matches!(record.change, Change::QueuePaused | Change::QueueResumed)
}

fn page_limit(limit: usize) -> usize {
    if limit == 0 { limits::PAGE_DEFAULT } else { limit.min(limits::PAGE_MAX) }
}

/// As `["a","",null]`: a cursor, the beginning, the end.
fn written(places: &[Place]) -> String {
    let texts: Vec<Option<&str>> = places
        .iter()
        .map(|place| match place {
            Place::Begin => Some(""),
            Place::At(cursor) => Some(cursor.as_str()),
            Place::End => None,
        })
        .collect();
    serde_json::to_string(&texts).expect("texts are plain data")
}

fn places(cursor: Option<&str>, many: usize) -> StoreResult<Vec<Place>> {
    let Some(text) = cursor else { return Ok(vec![Place::Begin; many]) };
    let read: Option<Vec<Option<String>>> = serde_json::from_str(text).ok();
    let read = read.filter(|places| places.len() == many).ok_or_else(|| not_given(text))?;
    let place = |text: Option<String>| match text {
        None => Place::End,
        Some(text) if text.is_empty() => Place::Begin,
        Some(text) => Place::At(text),
    };
    Ok(read.into_iter().map(place).collect())
}

fn whole_number(cursor: Option<&str>) -> StoreResult<usize> {
    cursor.map_or(Ok(0), |text| text.parse().map_err(|_| not_given(text)))
}

fn not_given(text: &str) -> StoreError {
    StoreError::new(ErrorKind::Invalid, format!("cursor {text:?} is not one that this listing has given"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_order_until_one_side_is_not_known_further() {
        let by = |a: &i32, b: &i32| a.cmp(b);
        let merged = |rows: [&[i32]; 2], more: [bool; 2], limit: usize| {
            let (items, used) = merge(rows.map(<[i32]>::to_vec).to_vec(), &more, limit, by);
            (items.into_iter().map(|(_, item)| item).collect::<Vec<_>>(), used)
        };
        assert_eq!(merged([&[1, 4], &[2, 3, 9]], [false, false], 10), (vec![1, 2, 3, 4, 9], vec![2, 3]));
        assert_eq!(merged([&[1, 4], &[2, 3, 9]], [true, false], 10), (vec![1, 2, 3, 4], vec![2, 2]));
        assert_eq!(merged([&[1, 4], &[2, 3, 9]], [true, true], 2), (vec![1, 2], vec![1, 1]));
        assert_eq!(merged([&[], &[1]], [true, false], 2), (vec![], vec![0, 0]));
    }

    #[test]
    fn a_cursor_survives_being_written_down_and_others_are_refused() {
        let some = vec![Place::Begin, Place::At("3.a\".b".into()), Place::End];
        assert_eq!(places(Some(&written(&some)), 3).unwrap(), some);
        assert_eq!(places(None, 2).unwrap(), vec![Place::Begin; 2]);
        for bad in ["", "x", "7", "[\"a\"]", "[1,2,3]"] {
            assert_eq!(places(Some(bad), 3).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
        assert!(whole_number(Some("x")).is_err());
    }
}
