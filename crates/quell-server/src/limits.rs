//! Every bound of the server, each with its reason. Bounds of events and runs are the engine's (`quell_core::limits`).

use std::time::Duration;

/// A request's head must be here after this long, also the first one of a connection; an idle connection is closed then.
/// A client that sends a byte a second does not hold a place for long.
pub const HEAD_TIME: Duration = Duration::from_secs(10);
/// The whole head of a request: names, values and the target.
pub const HEAD_BYTES: usize = 16 * 1024;
/// Header fields of a request: browsers and proxies send about twenty.
pub const HEADERS: usize = 64;
/// The target of a request; keys of 512 bytes may be percent-encoded three times as long.
pub const TARGET_BYTES: usize = 4 * 1024;
/// A body: as many payload bytes as one append may carry.
pub const BODY_BYTES: usize = 8 * 1024 * 1024;
/// Bodies of requests that are not events: filters and verdicts. A step's value and a run's result fit.
pub const SMALL_BODY_BYTES: usize = 1024 * 1024;
/// A body that pauses for this long, or takes longer altogether without reaching [`BODY_RATE`], is given up.
pub const BODY_PAUSE: Duration = Duration::from_secs(10);
/// Bytes per second that a body must reach on average once it has taken [`BODY_PAUSE`].
pub const BODY_RATE: u64 = 1024;
/// A reader of an answer that takes nothing for this long is gone.
pub const WRITE_TIME: Duration = Duration::from_secs(30);
/// Connections beyond the bound that are told so at once; each for a second at the most.
pub const REFUSING: usize = 64;
/// What is read and thrown away of a body that was refused, so that its sender gets to read the answer, and for how long.
pub const LEFTOVER_BYTES: usize = 16 * 1024 * 1024;
pub const LEFTOVER_TIME: Duration = Duration::from_secs(2);
/// Streams of one HTTP/2 connection at once.
pub const STREAMS: u32 = 128;
/// Streams that a client may reset before they are answered: beyond it, it is an attack.
pub const RESETS: usize = 64;
/// How long a connection of HTTP/2 may be silent before it is asked whether it still is there, and for an answer.
pub const PING_EVERY: Duration = Duration::from_secs(20);
/// Long polls and waits are answered after this long at the latest: proxies give up after a minute.
pub const WAIT_MAX: Duration = Duration::from_secs(55);
/// Runs that one claim may take over HTTP: their envelopes are one answer.
pub const CLAIM_MAX: usize = 100;
/// Lines of a stream of events that are stored in one transaction.
pub const NDJSON_LINES: usize = 500;
/// Payload bytes of such a group.
pub const NDJSON_BYTES: usize = 1024 * 1024;
/// Claims that the server remembers the lane and the lease of; what it has forgotten it looks up.
pub const CLAIMS_REMEMBERED: usize = 100_000;
/// Lanes or runs that one bulk action takes; the answer says whether there is more.
pub const BULK_MAX: usize = 1_000;
/// A form of the dashboard with a sentence in it.
pub const FORM_BYTES: usize = 8 * 1024;
/// Lanes that the preview of a bulk action looks at before it says "at least".
pub const PREVIEW_LANES: usize = 10_000;
/// Lanes that one page of the dashboard looks at for a filter that no index answers.
pub const FILTER_LANES: usize = 1_000;
/// Dead letters that are looked at for their groups: one read of the store.
pub const DEAD_LOOKED: usize = 1_000;
/// Operations of the dashboard that run at once; each of them keeps the store busy.
pub const OPERATIONS_RUNNING: usize = 4;
/// Operations that are remembered.
pub const OPERATIONS_KEPT: usize = 50;
/// Actions a second of an operation, unless somebody asks for others: workers have to keep up with what comes back.
pub const OPERATION_RATE: u32 = 50;
pub const OPERATION_RATE_MAX: u32 = 1_000;
/// Runs that one operation redrives: their numbers are kept in memory, so that the oldest can go first.
pub const OPERATION_RUNS_MAX: usize = 100_000;
/// Problems of an operation that are told one by one.
pub const OPERATION_PROBLEMS: usize = 20;
/// How old the list of tokens may be: so long a token that was taken away still works.
pub const TOKENS_AGE: Duration = Duration::from_secs(2);
/// Transitions that are kept for a reader of the stream who is slow or comes back.
pub const STREAM_KEPT: usize = 1_024;
/// The stream looks at the store at most this often.
pub const STREAM_EVERY: Duration = Duration::from_millis(250);
/// Streams at once: each is a connection that never ends.
pub const STREAMS_MAX: usize = 256;
/// A wrong token costs its address a pause that doubles from the first to the last of these.
pub const GUESS_PAUSE: Duration = Duration::from_millis(500);
pub const GUESS_PAUSE_MAX: Duration = Duration::from_secs(60);
/// Wrong tokens of one address that cost nothing: a misspelt one in a loop of a program is common.
pub const GUESSES_FREE: u32 = 10;
/// Addresses that are remembered for that.
pub const GUESSERS: usize = 10_000;
/// A login of the dashboard lasts this long.
pub const SESSION: Duration = Duration::from_secs(12 * 3600);
/// A webhook, unless the payload of a queue that webhooks go to may be larger: providers stay far below it, and whoever sends one has not
/// proven anything yet.
pub const HOOK_BODY_BYTES: usize = 1024 * 1024;
/// For endpoints that do not exist.
pub const HOOK_TOLERANCE: Duration = Duration::from_secs(300);
/// Deliveries that are remembered in one round, taken ones and refused ones each; more are only counted.
pub const DELIVERIES_A_ROUND: usize = 32;
/// The pause between two rounds. A person who looks has not switched windows yet.
pub const DELIVERIES_EVERY: Duration = Duration::from_millis(500);
/// Lanes that the first page counts by the reason they wait: as many as a listing gives at once. It says when there are more.
pub const LANES_COUNTED: usize = quell::quell_core::limits::PAGE_MAX;
/// How old that count, and what the page knows of dead letters, may be: however many people look, it is read once in so long.
pub const LOOK_AGE: Duration = Duration::from_secs(2);
/// Arrivals of one trial of the playground: a burst that can be looked at, and its address stays below [`TARGET_BYTES`].
pub const PLAYGROUND_EVENTS: usize = 400;
/// Runs of a lane that a replay reads, one by one, to know when their events came.
pub const PLAYGROUND_RUNS: usize = 25;
/// The longest time that a trial looks at: longer than finished runs are usually kept.
pub const PLAYGROUND_SPAN: Duration = Duration::from_secs(31 * 24 * 3600);
/// The longest that a handler of a trial takes.
pub const PLAYGROUND_HANDLING: Duration = Duration::from_secs(3600);
