//! Storing events whose lanes are in several databases: one part for each, all or nothing there (rule 25).
//!
//! What can be refused without a database is refused before the first part is sent. The parts follow one after the other. When
//! the first is refused, nothing is stored. When a later one fails for a while, the answer is *unknown*: the same request
//! again, which looks every id up, completes it. When a later one is refused for good, the answer says that, and that the
//! events of the other databases are stored: a resend with ids stores none of them twice.

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::NewEvent;
use quell_core::store::{AppendRequest, Appended, Receipt};

use crate::ManyStore;
use crate::relay::RELAY;

impl ManyStore {
    pub(crate) async fn append_in_parts(&self, request: AppendRequest) -> StoreResult<Appended> {
        let AppendRequest { events, repeat } = request;
        if events.iter().any(|event| event.lane.queue.as_str() == RELAY) {
            let text = format!(
                "the queue {RELAY} is kept for events on their way to another database: choose another name"
            );
            return Err(StoreError::new(ErrorKind::Invalid, text));
        }
        let first = events.first().map_or(0, |event| self.map.home(&event.lane));
        if events.iter().all(|event| self.map.home(&event.lane) == first) {
            return self.members[first].append(AppendRequest { events, repeat }).await;
        }
        let whole = AppendRequest { events, repeat };
        whole.check()?;
        self.append_parts(self.parted(whole.events), repeat).await
    }

    /// The events of each database, with their places in the request.
    fn parted(&self, events: Vec<NewEvent>) -> Vec<Vec<(usize, NewEvent)>> {
        let mut parts: Vec<Vec<(usize, NewEvent)>> = self.members.iter().map(|_| Vec::new()).collect();
        for (place, event) in events.into_iter().enumerate() {
            parts[self.map.home(&event.lane)].push((place, event));
        }
        parts
    }

    async fn append_parts(&self, parts: Vec<Vec<(usize, NewEvent)>>, repeat: bool) -> StoreResult<Appended> {
        let mut receipts: Vec<(usize, Receipt)> = Vec::new();
        for (database, part) in parts.into_iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let (places, events): (Vec<usize>, Vec<NewEvent>) = part.into_iter().unzip();
            match self.members[database].append(AppendRequest { events, repeat }).await {
                Ok(appended) => receipts.extend(places.into_iter().zip(appended.receipts)),
                Err(error) if receipts.is_empty() => return Err(error),
                Err(error) => return Err(self.partly(database, receipts.len(), &error)),
            }
        }
        receipts.sort_by_key(|(place, _)| *place);
        Ok(Appended { receipts: receipts.into_iter().map(|(_, receipt)| receipt).collect() })
    }

    fn partly(&self, database: usize, stored: usize, error: &StoreError) -> StoreError {
        let (place, problem) = (self.members[database].description().place, &error.detail);
        let kind = if error.is_temporary() { ErrorKind::Unknown } else { error.kind };
        StoreError::new(
            kind,
            format!(
                "{problem} (in {place}); {stored} events of this request are stored in other databases: send it again, with \
                 ids nothing is stored twice"
            ),
        )
    }
}
