use crate::Shared;
use quell_core::error::StoreResult;
use quell_core::store::Swept;
use std::time::Duration;
pub(crate) async fn forget(_shared: &Shared, _retention: Duration, _swept: &mut Swept) -> StoreResult<()> {
    Ok(())
}
