//! Every bound of the comparison, with its reason.

use std::time::Duration;

/// A driver that has not answered by then is ended, and its row says so. Its own limits are seconds; this is for one that hangs.
pub const CELL: Duration = Duration::from_secs(60);
/// The latest bytes of what a failed program said that are kept: the end of a stack trace, and a line of a table in the end.
pub const SAID: usize = 2_000;
/// Compiling apalis on two busy cores takes minutes; an installation that takes longer than this will not end.
pub const INSTALL: Duration = Duration::from_secs(1_500);
/// What is told of a failure in a table.
pub const REASON: usize = 160;
/// Rounds below this have no median worth writing down.
pub const ROUNDS_WRITTEN: usize = 5;
/// How long a server of a driver's own may take to accept connections.
pub const START: Duration = Duration::from_secs(10);
