//! Every bound of a store of several databases, each with its reason.

/// Partitions of a store, fixed for its whole life: the lanes of a database move in pieces of this size. Enough that thirty-two
/// databases differ by a thirty-second at the most, few enough that the map is a small document.
pub const PARTITIONS: usize = 1_024;
/// Databases of one store: the range of numbers is divided among them, and each needs a range that it never uses up.
pub const DATABASES_MAX: usize = 32;
/// The first range of numbers that a database may have. Those below lie where a database that is a store alone goes on after a
/// restore ([`quell_core::lease::after_restore`]).
pub const RANGE_FIRST: u64 = quell_core::limits::RANGES_FROM >> RANGE_BITS;
/// Where ranges end. A database uses one, a move one for each of its targets, so there are enough for two stores of the most
/// databases.
pub const RANGES: u64 = quell_core::limits::NUMBER_MAX >> RANGE_BITS;
pub use quell_core::limits::RANGE_BITS;
/// Lanes from before a move of which it is remembered where they are.
pub const LANES_MAX: usize = 65_536;
/// A database that did not answer a claim is left out by so many that follow: workers of the others do not wait for it.
pub const CLAIMS_LEFT_OUT: u32 = 8;
/// Lanes of relayed events that one step takes on.
pub const RELAY_STEP: usize = 16;
/// Steps of relaying that one call makes before it goes on with what it was asked.
pub const RELAY_STEPS_MAX: usize = 8;
/// How long whoever makes the map of a new store is waited for, in seconds, before somebody else makes it.
pub const MAKING_SECS: u64 = 60;
