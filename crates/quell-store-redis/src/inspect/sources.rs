//! Listings of sources, by name and tenant, with what waits for them and what is kept of them.

use quell_core::error::StoreResult;
use quell_core::inspect::{Page, SourceFilter, SourceRow};
use quell_core::source::{Source, SourceId};
use redis::Value;

use super::View;
use super::cursor::{hex, unhex_source};
use super::lanes::page_limit;
use crate::keys::source_text;
use crate::reply;

/// Names that one command reads.
const CHUNK: usize = 512;
/// Names that one page of a filtered listing looks at before it hands out a cursor.
const LOOK_MAX: usize = 20_000;

impl View<'_> {
    pub(super) async fn sources(&self, filter: &SourceFilter) -> StoreResult<Page<SourceRow>> {
        let limit = page_limit(filter.limit);
        let mut last = filter.cursor.as_deref().and_then(unhex_source);
        let (low, high) = match &filter.name {
            Some(name) => (format!("[{}\0", name.as_str()), format!("({}\u{1}", name.as_str())),
            None => ("-".to_owned(), "+".to_owned()),
        };
        let (mut found, mut looked) = (Vec::new(), 0);
        let next = loop {
            let from = last.as_ref().map_or_else(|| low.clone(), |last| format!("({last}"));
            let texts = self.source_texts(&from, &high).await?;
            let full = texts.len() == CHUNK;
            let wanted: Vec<String> = match &filter.tenant {
                Some(tenant) => {
                    let of_tenant =
                        |text: &String| text.split_once('\0').is_some_and(|(_, t)| t == tenant.as_str());
                    texts.iter().filter(|text| of_tenant(text)).cloned().collect()
                }
                None => texts.clone(),
            };
            found.extend(self.sources_named(&wanted).await?);
            looked += texts.len();
            if found.len() > limit {
                found.truncate(limit);
                break found.last().map(|source| source_text(&source.tenant, &source.name));
            }
            last = texts.into_iter().next_back().or(last);
            if !full {
                break None;
            }
            if looked >= LOOK_MAX {
                break last;
            }
        };
        let items = self.source_rows(&found).await?;
        Ok(Page { items, next: next.as_deref().map(hex) })
    }

    async fn source_texts(&self, from: &str, upto: &str) -> StoreResult<Vec<String>> {
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(self.shared.link.keys.of("sources")).arg(from).arg(upto).arg("LIMIT").arg(0).arg(CHUNK);
        Ok(reply::list(self.shared.plain(&command).await?)?.into_iter().filter_map(reply::text).collect())
    }

    /// Sources by their texts, in this order.
    async fn sources_named(&self, texts: &[String]) -> StoreResult<Vec<Source>> {
        let numbers = self.shared.rows_of("source", texts).await?;
        let number = |row: &Vec<u8>| std::str::from_utf8(row).ok()?.parse().ok().map(SourceId);
        let numbers: Vec<SourceId> = numbers.iter().filter_map(number).collect();
        let mut rows = self.shared.sources_of(numbers.iter().copied()).await?;
        Ok(numbers.iter().filter_map(|id| rows.remove(id)).collect())
    }

    /// Lanes that wait for a source are in its sets of due times, those that are paused or blocked in one of their own.
    async fn source_rows(&self, sources: &[Source]) -> StoreResult<Vec<SourceRow>> {
        let (keys, now) = (&self.shared.link.keys, format!("({}", self.now.as_millis()));
        let mut pipe = redis::pipe();
        let mut counts = Vec::with_capacity(sources.len());
        for source in sources {
            pipe.cmd("ZCOUNT").arg(keys.kept(source.id)).arg(&now).arg("+inf");
            pipe.cmd("SCARD").arg(keys.stopped(source.id));
            let mut sets = 0;
            for (queue, places) in &self.governed {
                for (priority, _) in places.iter().filter(|(_, of)| *of == source.id) {
                    pipe.cmd("ZCARD").arg(keys.due(*priority, Some(source.id), queue));
                    sets += 1;
                }
            }
            counts.push(sets);
        }
        if sources.is_empty() {
            return Ok(Vec::new());
        }
        let mut answers = self.shared.link.pipe(&pipe).await?.into_iter();
        let mut next = || reply::count(answers.next().unwrap_or(Value::Int(0)));
        let mut rows = Vec::with_capacity(sources.len());
        for (source, sets) in sources.iter().zip(counts) {
            let (cached, mut waiting) = (next()?, next()?);
            for _ in 0..sets {
                waiting += next()?;
            }
            rows.push(SourceRow::of(source, self.now, waiting, cached));
        }
        Ok(rows)
    }
}
