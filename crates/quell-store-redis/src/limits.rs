//! What may be in a row of this store at the most; the limits of the contract are those of `quell-core`.

/// The bytes of a pocket that stays: a lane with one event of the usual size, its run and their records fits. Every change of a
/// lane writes its pocket again, so a larger one costs lanes that are used again and again more than the sets would.
pub(crate) const POCKET: usize = 1_024;

/// The largest event or run that comes into a pocket.
pub(crate) const POCKET_ROW: usize = 512;
