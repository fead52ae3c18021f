//! Local servers that speak the protocols of the others: a model, and the three providers.
//!
//! They serve `quell demo chat`, where nothing may leave the machine, and the tests, which run over real HTTP. They listen
//! on the loopback address, check what the real ones check, write down what they got, and fail when they are told to.

mod model;
mod providers;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use model::{Asked, Ended, LocalModel, ModelFault, Script, Words};
pub use providers::{LocalProviders, ProviderFault, Received};

/// Listens until it is dropped.
#[derive(Debug)]
struct Listening {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    async fn start(router: Router) -> io::Result<Listening> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "a local server has stopped");
            }
        });
        Ok(Listening { address, task })
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn json(status: StatusCode, body: &Value) -> Response<Body> {
    with_headers(status, &[("content-type", "application/json")], body.to_string())
}

/// Headers that no answer can carry are left out.
fn with_headers(status: StatusCode, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    for (name, value) in headers {
        let pair = (header::HeaderName::from_bytes(name.as_bytes()), header::HeaderValue::from_str(value));
        if let (Ok(name), Ok(value)) = pair {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// What a server and its owner share.
struct Shared<T>(Arc<Mutex<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Shared<T> {
    fn new(value: T) -> Self {
        Shared(Arc::new(Mutex::new(value)))
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("nothing panics while it is locked")
    }
}
