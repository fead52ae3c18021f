//! The operations of this server: the list, one with its progress, and the button that stops it.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State as Shared;
use axum::response::Response;

use super::{Operation, Progress, State};
use crate::Path;
use crate::app::App;
use crate::auth::Principal;
use crate::dashboard::shell::{Content, Shell, rendered};
use crate::dashboard::view::{self, Clock};
use crate::dashboard::{PageAnswer, session};
use crate::error::{Answer, Problem};

struct Row {
    operation: Arc<Operation>,
    progress: Progress,
}

impl From<Arc<Operation>> for Row {
    fn from(operation: Arc<Operation>) -> Self {
        Row { progress: operation.progress(), operation }
    }
}

#[derive(Template)]
#[template(path = "lane_operations.html")]
struct List {
    clock: Clock,
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "lane_operation.html")]
struct Detail {
    clock: Clock,
    row: Row,
    operates: bool,
}

pub(in crate::dashboard) async fn list(
    Shared(app): Shared<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
) -> PageAnswer {
    let rows = app.operations.seen_by(&principal).into_iter().map(Row::from).collect();
    let live = rendered(&List { clock: Clock { now: app.wall() }, rows });
    Ok(shell.show(&Content { title: "Operations".to_owned(), fixed: String::new(), live }))
}

pub(in crate::dashboard) async fn show(
    Shared(app): Shared<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Extension(shell): Extension<Shell>,
    Path(id): Path<String>,
) -> PageAnswer {
    let row = Row::from(app.operations.find(&principal, number(&id)?)?);
    let title = row.operation.title.clone();
    let live = rendered(&Detail { clock: Clock { now: app.wall() }, row, operates: shell.operates() });
    Ok(shell.show(&Content { title, fixed: String::new(), live }))
}

pub(in crate::dashboard) async fn stop(
    Shared(app): Shared<Arc<App>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let operation = app.operations.find(&principal, number(&id)?)?;
    operation.stop.cancel();
    Ok(session::see_other(&format!("/ui/operations/{}", operation.id)))
}

fn number(id: &str) -> Answer<u64> {
    id.parse().map_err(|_| Problem::not_found("there is no such operation"))
}
