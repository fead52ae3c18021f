//! The endpoints of a configuration with their secrets: what a server takes webhooks with, and what `quell trigger` signs with.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell_webhook::{Endpoint, Proof, Secret};

use crate::config::{EndpointSettings, Settings};
use crate::secrets;

/// A word that people agree on once, to be told that an endpoint is theirs.
const VERIFY_BYTES_MIN: usize = 8;

/// An endpoint that is ready to take deliveries.
#[derive(Debug, Clone)]
pub struct ReadyEndpoint {
    /// As the configuration says.
    pub settings: Arc<EndpointSettings>,
    /// The same with its secrets, ready to judge deliveries.
    pub proofs: Endpoint,
}

/// Why an endpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint {endpoint:?}: {problem}")]
pub struct EndpointError {
    /// Which endpoint.
    pub endpoint: String,
    /// What is the matter, without the secret itself.
    pub problem: String,
}

/// Reads the secrets of all endpoints. The answer also has what is suspicious and yet no error.
pub fn ready(
    settings: &Settings,
    env: &BTreeMap<String, String>,
) -> Result<(Vec<ReadyEndpoint>, Vec<String>), EndpointError> {
    let (mut endpoints, mut warnings) = (Vec::new(), Vec::new());
    for endpoint in &settings.endpoints {
        let name = &endpoint.name;
        let sources = endpoint.secrets.iter().chain(&endpoint.verify);
        for source in sources.filter(|source| secrets::readable_by_all(source)) {
            warnings.push(format!(
                "endpoint {name}: everybody on this machine can read the secret from {source}"
            ));
        }
        if endpoint.scheme.proof() == Proof::None {
            warnings.push(format!(
                "endpoint {name} takes what anybody sends: it has scheme = \"none\", which is for trying things out"
            ));
        }
        endpoints.push(one(endpoint, env)?);
    }
    Ok((endpoints, warnings))
}

fn one(
    settings: &Arc<EndpointSettings>,
    env: &BTreeMap<String, String>,
) -> Result<ReadyEndpoint, EndpointError> {
    let bad = |problem: String| EndpointError { endpoint: settings.name.clone(), problem };
    let (mut secrets, mut verify) = (Vec::new(), Vec::new());
    for source in &settings.secrets {
        let text = secrets::read(source, env).map_err(|error| bad(error.to_string()))?;
        let secret = settings.scheme.secret(&text);
        secrets
            .push(secret.map_err(|error| bad(format!("the secret from {source} cannot be used: {error}")))?);
    }
    for source in &settings.verify {
        let text = secrets::read(source, env).map_err(|error| bad(error.to_string()))?;
        if text.len() < VERIFY_BYTES_MIN {
            let (found, least) = (text.len(), VERIFY_BYTES_MIN);
            return Err(bad(format!(
                "the verify token from {source} has {found} bytes; {least} or more are needed"
            )));
        }
        verify.push(Secret::new(text));
    }
    let proofs = Endpoint {
        scheme: settings.scheme.clone(),
        secrets,
        verify,
        tolerance: settings.tolerance,
        public_url: settings.public_url.clone(),
        rules: settings.rules.clone(),
    };
    Ok(ReadyEndpoint { settings: settings.clone(), proofs })
}
