//! Torture: real processes on one store, killed, stopped and cut off at random, and judged in the end.
//!
//! A parent starts children that send, work and lay hands on lanes ([`child()`], `roles.rs`, on the queues of `courses.rs`).
//! Each writes what it asks and what it is told into a log of its own ([`record`]). Faults are drawn from a seed
//! ([`Fault`], `campaign.rs`) and done to the processes (`crew.rs`), the connections (`proxy.rs`), the disk (`disk.rs`) or the
//! server (`ground.rs`). In the end everything is drained, the store is dumped, and the independent checker, `quell-check`,
//! judges the whole history ([`judge()`]).
//!
//! `quell torture` and the kill loops of the stores' tests share this; no store is known here ([`Door`]).

mod campaign;
pub mod chance;
mod child;
mod clock;
mod courses;
mod crew;
mod disk;
mod fault;
mod ground;
mod judge;
mod proxy;
pub mod reads;
pub mod record;
mod report;
pub mod requests;
mod roles;

pub use campaign::{Options, refuse_unless_empty, run};
pub use child::{Role, child, log_path};
pub use crew::{Door, Synchronous, Task, end, signal};
pub use fault::Fault;
pub use ground::{Kind, Place};
pub use judge::{Broken, Judged, judge};
pub use report::{Bite, Found, Report};
pub use roles::pause;
