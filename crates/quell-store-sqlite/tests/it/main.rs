//! One integration binary: the shared suite, real processes killed at random and such that ask one source, files that must
//! be refused, backups, events in callers' own transactions, seals, sources, and what an erase leaves on the disk.

mod backup;
mod contract;
mod erase;
mod faults;
mod governed;
mod kill;
mod seal;
mod sources;
mod transact;
