//! x
use crate::app::App;
use axum::Router;
use std::sync::Arc;
pub(crate) fn router(_app: &Arc<App>) -> Router<Arc<App>> {
    Router::new()
}
