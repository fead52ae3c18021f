//! Every bound of the engine, each with its reason.
//!
//! Whatever grows has a limit here. A request over a limit gets an explicit error that names the limit, and nothing
//! of it is stored. A queue's settings may choose smaller values; the `_MAX` values are what no setting may pass.

use std::time::Duration;

/// Keys are stored in every lane row and shown in tables: long enough for a URL or an encoded composite.
pub const KEY_BYTES_MAX: usize = 512;
/// Queue names are typed by people, used in URLs, metrics labels and file paths.
pub const QUEUE_NAME_BYTES_MAX: usize = 64;
/// Tenants are names of owners, not data.
pub const TENANT_BYTES_MAX: usize = 128;
/// An id is a provider's message id or a UUID; the index over ids stays small.
pub const EVENT_ID_BYTES_MAX: usize = 256;
/// Chat messages and hook events are far below this; a batch of 1,000 of them still fits in memory.
pub const PAYLOAD_BYTES_DEFAULT: usize = 256 * 1024;
/// One SQLite row, one Redis value and one PostgreSQL parameter of this size are still comfortable.
pub const PAYLOAD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Deeper JSON is an attack on a recursive parser further down, never a message.
pub const PAYLOAD_DEPTH_MAX: usize = 128;
/// Headers are an allow-list of small strings (trace context, content type).
pub const HEADERS_BYTES_MAX: usize = 4 * 1024;
/// One append request is one piece of a transaction; larger bulks are split by the sender.
pub const APPEND_EVENTS_MAX: usize = 10_000;
/// All payloads of one append request together, the size of an HTTP body.
pub const APPEND_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A lane that nobody empties is a fault to be told to the sender, not a disk to be filled.
pub const LANE_EVENTS_DEFAULT: u64 = 10_000;
/// No setting may ask for more than this in one lane.
pub const LANE_EVENTS_MAX: u64 = 1_000_000;
/// A batch is handed over in one piece and held in memory by the handler.
pub const BATCH_EVENTS_DEFAULT: u32 = 1_000;
/// More would be a claim that nobody can hold in memory.
pub const BATCH_EVENTS_MAX: u32 = 10_000;
/// The bytes bound of a batch; a single larger event still goes alone.
pub const BATCH_BYTES_DEFAULT: u64 = 4 * 1024 * 1024;
/// The same in bytes.
pub const BATCH_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Claims of one call: bounds the time a claim holds the store's write lock.
pub const CLAIM_LANES_MAX: usize = 512;
/// Payload bytes that one claim call hands out before it stops taking further lanes.
pub const CLAIM_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Stale lanes (windows or leases moved on) that one claim pushes before it answers and is asked again.
pub const CLAIM_PUSH_MAX: usize = 2_048;
/// Waiting longer than this in one window is a delay, not a burst.
pub const WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Without an explicit cap a quiet window waits at most this many quiet periods.
pub const MAX_WAIT_QUIETS_DEFAULT: u32 = 10;
/// Shorter leases cannot be renewed reliably over a network; longer ones make a crash wait.
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// Long enough for a pause of a busy machine, short enough to wait for.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// Nobody notices a dead worker for longer than that.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// A heartbeat is sent at least this often, whatever the lease.
pub const HEARTBEAT_MAX: Duration = Duration::from_secs(20);
/// A run that has been tried this often is not going to succeed by itself.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// Hand-backs that are refunded per run; afterwards they count, so a loop of hand-backs ends.
pub const REFUNDS_MAX: u32 = 10;
/// A handler's wish to be retried later is honoured up to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// What is kept of an error text or of the tail of a child's stderr.
pub const ERROR_BYTES_MAX: usize = 4 * 1024;
/// What is kept of an answer, of stderr and of an error for each attempt; the error of the last one is kept longer.
pub const REPORT_TEXT_BYTES_MAX: usize = 2 * 1024;
/// Method and URL, or the name of a program.
pub const REPORT_REQUEST_BYTES_MAX: usize = 512;
/// Attempts of a run whose reports are kept, the latest: all of them together stay smaller than one step may be.
pub const REPORTS_MAX: u32 = 20;
/// A result is a small JSON for whoever waits for it, not a document store.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Named numbers a handler may report.
pub const USAGE_ENTRIES_MAX: usize = 32;
/// Frozen runs (redriven, halves of a split) that may wait in one lane; a redrive beyond this is refused.
pub const QUEUED_RUNS_MAX: usize = 64;
/// The times a run may give way to newer events unless its queue says otherwise, and at the most.
pub const INTERRUPTS_DEFAULT: u32 = 3;
/// Beyond it a run would never end.
pub const INTERRUPTS_MAX: u32 = 100;
/// Priorities are 0 to 9; most events are in the middle.
pub const PRIORITY_DEFAULT: u8 = 4;
/// The first to be served.
pub const PRIORITY_MAX: u8 = 9;
/// How much earlier a lane is taken for each level of priority. Bounded, so that nothing starves.
pub const PRIORITY_STEP: Duration = Duration::from_secs(30);
/// A longer delay is a calendar entry, not a queue's business; a year still covers every reminder.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Events that one claim or sweep takes from aside into their lanes, so that neither stalls.
pub const ASIDE_STEP: usize = 256;
/// How long an event whose lane is full stays aside before its lane is looked at again.
pub const ASIDE_FULL_WAIT: Duration = Duration::from_secs(1);
/// Events that one settle may carry: follow-up work, not a bulk load.
pub const CARRIED_EVENTS_MAX: usize = 100;
/// A step's name is typed in code and shown in tables.
pub const STEP_NAME_BYTES_MAX: usize = 128;
/// A step remembers an answer of an outside party, not a document.
pub const STEP_VALUE_BYTES_MAX: usize = 256 * 1024;
/// Steps of one revision of a run.
pub const STEPS_MAX: usize = 1_000;
/// A claim's own id is a UUID or the like.
pub const CLAIM_ID_BYTES_MAX: usize = 128;
/// Runs or events that one purge call takes away; the answer says whether there is more.
pub const PURGE_STEP: usize = 1_000;
/// Names of schedules are typed by people.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 64;
/// Schedules are configuration, not data.
pub const SCHEDULES_MAX: usize = 10_000;
/// Sources are declared by people, one for each outside party.
pub const SOURCES_DECLARED_MAX: usize = 1_000;
/// Faster than this is no limit that an outside party sets; the bucket's arithmetic stays far below 64 bits.
pub const SOURCE_PER_MINUTE_MAX: u32 = 10_000_000;
/// A bucket that large is no limit any more.
pub const SOURCE_BURST_MAX: u32 = 1_000_000;
/// Faults in a row that open a breaker unless the declaration says otherwise, and at the most: beyond it there is none.
pub const SOURCE_FAILURES_DEFAULT: u32 = 5;
/// More is no breaker any more.
pub const SOURCE_FAILURES_MAX: u32 = 1_000;
/// An outage is looked at again after this long, and at least once a day.
pub const SOURCE_COOLDOWN_DEFAULT: Duration = Duration::from_secs(300);
/// A day: longer is what disabling a source is for.
pub const SOURCE_COOLDOWN_MAX: Duration = Duration::from_secs(24 * 3600);
/// A source's wish to be left alone is honoured up to this: daily quotas are, a wrong number does not hold it for ever.
pub const SOURCE_RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// Whoever meets a disabled source in the middle of a run asks again after this long at the earliest.
pub const SOURCE_HELD_WAIT: Duration = Duration::from_secs(60);
/// Tokens of running claims that a source remembers to take back; it is one row, written with every claim.
pub const SOURCE_UNSPENT_MAX: usize = 32;
/// Answers of a source are kept this long unless its declaration or the handler says otherwise, and at the most.
pub const CACHE_TTL_DEFAULT: Duration = Duration::from_secs(3600);
/// A month: what is older is no answer any more.
pub const CACHE_TTL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Cache keys are composed of a few fields of a request.
pub const CACHE_KEY_BYTES_MAX: usize = 1024;
/// One page of an outside party's answer; four times what a step remembers.
pub const CACHE_VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Answers that are kept of one source; beyond it those that expire first make room.
pub const CACHE_ROWS_MAX: usize = 10_000;
/// Expired answers that one sweep removes.
pub const CACHE_SWEEP_STEP: usize = 1_000;
/// How long others wait for one that fetches: a request takes seconds, and a fetcher that died is not waited for long.
pub const CACHE_FLIGHT: Duration = Duration::from_secs(30);
/// Names of documents are those of tokens and workers: typed or shown by people.
pub const SHELF_NAME_BYTES_MAX: usize = 128;
/// A document says a few things about something; a whole shelf is read at once.
pub const SHELF_BODY_BYTES_MAX: usize = 16 * 1024;
/// A delivery of a webhook with its headers and its body; there are few of them (`quell::deliveries`).
pub const SHELF_DELIVERY_BYTES_MAX: usize = 64 * 1024;
/// Readers of JSON give up at 128 levels, and a document is shown inside of others.
pub const SHELF_BODY_DEPTH_MAX: usize = 64;
/// Live documents of one shelf: it is read whole, by everybody who wants to know one of them.
pub const SHELF_DOCUMENTS_MAX: usize = 10_000;
/// What is to stay for longer than this stays until it is removed.
pub const SHELF_TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Documents that are over and that one sweep removes.
pub const SHELF_SWEEP_STEP: usize = 1_000;
/// Applications are named by programmers.
pub const APPLICATION_NAME_BYTES_MAX: usize = 32;
/// Names of keys are made of ids and keys of lanes, several at a time.
pub const APPLICATION_KEY_BYTES_MAX: usize = 1_024;
/// A restored store continues its numbers this far ahead of its backup: more than were handed out since. 2^12 restores
/// fit below 2^52.
pub const EPOCH_JUMP: u64 = 1 << 40;
/// Databases that are one store together take their numbers (lanes, runs, events, tokens) from ranges of 2^46 of their own, so
/// that no two give the same one: at 150 thousand numbers a second a range lasts for fourteen years.
pub const RANGE_BITS: u32 = 46;
/// Where these ranges begin: half of all numbers, which a database alone reaches by no calendar before the year 2160.
pub const RANGES_FROM: u64 = 1 << 52;
/// The jump of a database that has such a range: what it gives in five days at that rate. 2^10 restores fit into a range.
pub const RANGE_JUMP: u64 = 1 << 36;
/// Stdout of a child beyond this is read and thrown away.
pub const EXEC_OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Held lanes of one queue that a look at its leases reads in stores that cannot count them by themselves. Those come first
/// whose entry is over first, and the entry of a lane that stays held comes to the front once in each lease.
pub const LEASES_LOOK: usize = 1_000;
/// Rows of one listing page.
pub const PAGE_MAX: usize = 1_000;
/// What a screen shows.
pub const PAGE_DEFAULT: usize = 20;
/// Finished runs, their events, their ids and their audit are kept this long.
pub const RETENTION_DEFAULT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Finished runs that one retention step removes, so that it never stalls the hot path.
pub const RETENTION_RUNS_STEP: usize = 200;
/// Event rows that one retention step removes.
pub const RETENTION_EVENTS_STEP: usize = 1_000;
/// Expired leases that one sweep call takes back.
pub const SWEEP_LANES_STEP: usize = 256;
/// A store call that has not been started after this long is refused as unavailable.
pub const STORE_CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Calls waiting for the store's writer; beyond this the caller gets "unavailable" at once.
pub const STORE_QUEUE_MAX: usize = 16_384;
/// Lanes one worker process may run at once unless the settings say otherwise.
pub const CONCURRENCY_DEFAULT: usize = 20;
/// Each is a handler that runs, with a heartbeat of its own.
pub const CONCURRENCY_MAX: usize = 4_096;

/// What an operator says of why: a sentence, kept with every record of the action.
pub const REASON_CHARS_MAX: usize = 200;
/// The beginning of an error that tells what kind of error it is; what follows is mostly a trace.
pub const FINGERPRINT_CHARS_LOOKED: usize = 512;
/// What is kept of it for people to read.
pub const FINGERPRINT_CHARS_MAX: usize = 200;

/// JavaScript and many JSON readers keep integers exactly only below this; sequence numbers and tokens stay under it.
pub const NUMBER_MAX: u64 = 1 << 53;

const _: () = {
    assert!(PAYLOAD_BYTES_DEFAULT <= PAYLOAD_BYTES_MAX);
    assert!(PAYLOAD_BYTES_MAX <= APPEND_BYTES_MAX);
    assert!(BATCH_EVENTS_DEFAULT <= BATCH_EVENTS_MAX);
    assert!(BATCH_BYTES_DEFAULT <= BATCH_BYTES_MAX);
    assert!(LANE_EVENTS_DEFAULT <= LANE_EVENTS_MAX);
    assert!(
        REPORTS_MAX as usize * (3 * REPORT_TEXT_BYTES_MAX + REPORT_REQUEST_BYTES_MAX) <= STEP_VALUE_BYTES_MAX
    );
};
