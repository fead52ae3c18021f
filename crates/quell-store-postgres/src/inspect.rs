use crate::Shared;
use quell_core::error::*;
use quell_core::inspect::*;
pub(crate) async fn inspect(shared: &Shared, _request: Inspect) -> StoreResult<Inspected> {
    let c = shared.connections.get().await?;
    Ok(Inspected::Health(crate::health::health(shared, &c).await?))
}
