//! Woken by whichever database calls first.

use async_trait::async_trait;
use futures_util::future::select_all;
use quell_core::store::Wakeups;

/// A listener at each database. Those that are not heard now keep what they have for the next call.
pub(crate) struct Any(pub(crate) Vec<Box<dyn Wakeups>>);

#[async_trait]
impl Wakeups for Any {
    async fn woken(&mut self) {
        select_all(self.0.iter_mut().map(|listener| listener.woken())).await;
    }
}
