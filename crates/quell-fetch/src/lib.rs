#[allow(dead_code)]
mod cache;
mod call;
mod clock;
mod guard;
pub use call::*;pub use guard::*;