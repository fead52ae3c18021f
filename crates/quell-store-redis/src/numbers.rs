//! Numbers that this process has set apart: a block at a time, so that most transactions need not ask for any.
//!
//! Whoever works on a lane gives it numbers larger than all it has. Blocks do not overlap and each is used in order, so
//! a number of a later block is larger than any of an earlier one; when the lane has one from a later block than ours,
//! ours is thrown away. A block ends with its epoch: after a server has lost its tail, lanes may have forgotten numbers
//! that were told, and only a block from behind the jump is certainly larger. It also ends after a moment, so that the
//! numbers of all processes rise with time: listings go by them, and the retention.
//!
//! Blocks are as large as they prove to be of use. Processes that take turns on one lane throw away what they have set
//! apart each time, and numbers must not be used up faster than those behind a jump of the epoch: 2^20 a second.

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use quell_core::error::{ErrorKind, StoreError};
use quell_core::limits;
use quell_store_rows::rows::{RowsResult, Trouble};

use crate::clock::instant;
use crate::link::{For, Link};
use crate::reply;
use crate::script::Script;

/// How many numbers a process sets apart at once at the most: ten groups of appends.
const BLOCK: u64 = 20_000;
/// How long a block is used.
const LASTS: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Numbers {
    block: Mutex<Block>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Block {
    epoch: u64,
    numbers: Range<u64>,
    taken: Option<Instant>,
    /// How large it was.
    size: u64,
}

impl Block {
    /// Numbers of this epoch, all larger than `than`.
    fn take(&mut self, epoch: u64, count: u64, than: u64) -> Option<Range<u64>> {
        let Range { start, end } = self.numbers;
        let fresh = self.taken.is_some_and(|taken| taken.elapsed() < LASTS);
        if self.epoch != epoch || !fresh || start <= than || end - start < count {
            return None;
        }
        self.numbers.start += count;
        Some(start..start + count)
    }
}

impl Block {
    /// How large the next one is to be: twice this one if it was used up, as small as possible if it was overtaken.
    fn next_size(&self, count: u64, than: u64) -> u64 {
        let left = self.numbers.end - self.numbers.start;
        match left > 0 && self.numbers.start <= than {
            true => count,
            false => (self.size * 2).clamp(count, BLOCK.max(count)),
        }
    }
}

impl Numbers {
    /// Sets numbers apart that are larger than any in the lanes at hand.
    pub(crate) async fn take(
        &self,
        link: &Link,
        epoch: u64,
        count: usize,
        than: u64,
    ) -> RowsResult<Range<u64>> {
        let count = count as u64;
        let size = match self.block.lock() {
            Ok(mut block) => match block.take(epoch, count, than) {
                Some(numbers) => return Ok(numbers),
                None => block.next_size(count, than),
            },
            Err(_) => count,
        };
        let mut call = link.script(Script::Take);
        call.arg(size);
        let mut answer = reply::list(link.read(For::Transactions, &call).await?)?.into_iter();
        let mut next = || answer.next().map_or_else(|| Err(crate::error::strange("no number")), reply::count);
        let (given, last) = (next()?, next()?);
        if given != epoch {
            link.open_again().await?;
            return Err(Trouble::Again);
        }
        if last >= limits::NUMBER_MAX || last < than {
            return Err(spent(last, than).into());
        }
        let mut block = Block { epoch, numbers: last + 1 - size..last + 1, taken: Some(instant()), size };
        let numbers = block.take(epoch, count, than).ok_or_else(|| spent(last, than))?;
        if let Ok(mut known) = self.block.lock() {
            // Another task may have taken one meanwhile; the later one serves more lanes.
            if known.epoch != epoch || known.numbers.start < block.numbers.start {
                *known = block;
            }
        }
        Ok(numbers)
    }
}

fn spent(last: u64, than: u64) -> StoreError {
    let text = format!(
        "the sequence of the store stands at {last} and a lane at {than}: the server has lost numbers that it told"
    );
    StoreError::new(ErrorKind::Corrupt, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_serves_only_lanes_that_are_behind_it() {
        let mut block = Block { epoch: 3, numbers: 100..110, taken: Some(instant()), size: 10 };
        assert_eq!(block.take(3, 4, 99), Some(100..104));
        assert_eq!(block.take(3, 4, 103), Some(104..108), "what it gave itself is no obstacle");
        assert_eq!(block.take(3, 2, 500), None, "a lane that is ahead needs another block");
        assert_eq!(block.take(3, 3, 0), None, "two are left");
        assert_eq!(block.take(4, 1, 0), None, "it ends with its epoch");
        assert_eq!(block.take(3, 2, 0), Some(108..110));
    }

    #[test]
    fn blocks_grow_while_they_are_used_up_and_shrink_when_they_are_overtaken() {
        let block = Block { numbers: 100..110, size: 40, ..Block::default() };
        assert_eq!(block.next_size(20, 99), 80, "too few were left");
        assert_eq!(block.next_size(20, 500), 20, "a lane is ahead of it");
        assert_eq!(Block { size: BLOCK, ..Block::default() }.next_size(20, 500), BLOCK, "it was used up");
        assert_eq!(Block::default().next_size(50_000, 0), 50_000, "never less than is needed");
    }

    #[test]
    fn an_empty_block_gives_nothing() {
        assert_eq!(Block::default().take(0, 1, 0), None);
        assert_eq!(
            Block { numbers: 1..9, ..Block::default() }.take(0, 1, 0),
            None,
            "nor does one that is over"
        );
    }
}
