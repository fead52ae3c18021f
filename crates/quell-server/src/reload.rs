//! `POST /v1/reload`: the configuration is read again while the server runs, as by SIGHUP.
//!
//! What is read and what it changes is the program's business ([`Reload`]); the server offers it to administrators, and lets
//! the program put other endpoints in place ([`LiveServer`]). A file that cannot be used changes nothing, and the answer says
//! what is wrong with it.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use quell::config::Settings;
use quell::endpoints::ReadyEndpoint;
use serde::Serialize;
use utoipa::ToSchema;

use crate::ServeError;
use crate::app::App;
use crate::error::{Answer, Problem, ProblemDocument};
use crate::hooks::{self, Endpoints};

/// What became of a file that was read again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Reloaded {
    /// The settings that are different now, as `quell check` names them.
    pub changed: Vec<String>,
    /// Settings of the file that are different from those in force, and stay so until the process is started anew.
    pub restart: Vec<String>,
}

/// Reads the configuration again.
#[async_trait]
pub trait Reload: Send + Sync {
    /// Puts the file in force, or says what is wrong with it and changes nothing.
    async fn reload(&self) -> Result<Reloaded, String>;
}

/// A server that runs, for those who change what it does.
#[derive(Clone)]
pub struct LiveServer {
    app: Arc<App>,
    elsewhere: Option<SocketAddr>,
}

impl LiveServer {
    pub(crate) fn new(app: Arc<App>, elsewhere: Option<SocketAddr>) -> Self {
        LiveServer { app, elsewhere }
    }

    /// Whether these endpoints may be put in place: other machines must not reach one that takes what anybody sends.
    pub fn allows(&self, endpoints: &[ReadyEndpoint]) -> Result<(), ServeError> {
        match (self.elsewhere, hooks::unproven(endpoints)) {
            (Some(address), Some(name)) => Err(ServeError::Unsigned { address, endpoint: name.to_owned() }),
            _ => Ok(()),
        }
    }

    /// Puts other endpoints in place of those before. Deliveries that are under way are received by the old ones.
    pub fn change(&self, endpoints: Vec<ReadyEndpoint>, settings: &Settings) {
        self.app.hooks.change(Endpoints::new(endpoints, settings));
    }
}

/// Reads the configuration file again, as by SIGHUP: what it says of queues, sources, schedules, tenants and endpoints is in
/// force when this answers, and running handlers keep their leases.
#[utoipa::path(
    post, path = "/v1/reload", operation_id = "reload", tag = "admin",
    responses(
        (status = 200, description = "The file is in force", body = Reloaded),
        (status = 409, description = "This server was started without a file", body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "The file cannot be used, and nothing was changed", body = ProblemDocument, content_type = "application/problem+json"),
    ),
    security(("token" = ["admin"])),
)]
pub(crate) async fn reload(State(app): State<Arc<App>>) -> Answer<Response> {
    let Some(reload) = &app.reload else {
        let detail =
            "this server was started without a configuration file, so there is nothing to read again";
        return Err(Problem::new(StatusCode::CONFLICT, "no-configuration", detail));
    };
    let reloaded = reload.reload().await;
    let reloaded = reloaded
        .map_err(|detail| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-configuration", detail))?;
    Ok(crate::json(&reloaded))
}
