//! Following the audit trail: what has happened since a record that was seen.

use quell_core::audit::AuditRecord;
use quell_core::error::StoreResult;
use quell_core::inspect::AuditFilter;

use crate::engine::Engine;

/// Records of the first look: a few are enough to see that there is nothing new.
const PEEK: usize = 32;
const PAGE: usize = 500;

impl Engine {
    /// The number of the newest record, 0 when there is none.
    pub async fn newest_record(&self) -> StoreResult<u64> {
        let newest = self.audit(AuditFilter { limit: 1, ..AuditFilter::default() }).await?;
        Ok(newest.items.first().map_or(0, |record| record.id))
    }

    /// What the trail has behind this record, oldest first, and whether it is all of it: it stops after about `most`.
    pub async fn audit_since(
        &self,
        id: u64,
        of: AuditFilter,
        most: usize,
    ) -> StoreResult<(Vec<AuditRecord>, bool)> {
        let mut newer = Vec::new();
        let mut cursor = None;
        loop {
            let limit = if cursor.is_none() { PEEK } else { PAGE };
            let page = self.audit(AuditFilter { cursor, limit, ..of.clone() }).await?;
            let reached = page.items.iter().any(|record| record.id <= id);
            newer.extend(page.items.into_iter().filter(|record| record.id > id));
            cursor = page.next;
            // At the end of the trail, older records may have been there: only the very first has none before it.
            let whole = reached || (cursor.is_none() && id == 0);
            if whole || cursor.is_none() || newer.len() >= most {
                newer.reverse();
                return Ok((newer, whole));
            }
        }
    }
}
