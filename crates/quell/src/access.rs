//! The tokens of a store: made, listed and taken away. What a token is stands in `tokens.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::event::{Invalid, QueueName, Tenant};
use quell_core::shelf::{Document, Shelf};

use crate::clock;
use crate::engine::{Engine, EngineError};
use crate::tokens::{ApiToken, NewToken, Scope};

/// A token expires after a year and a day at the latest, or never.
const EXPIRY_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Names are typed by people and stand in the audit trail.
const NAME_MAX: usize = 64;

/// A token to be made.
#[derive(Debug, Clone)]
pub struct TokenWish {
    /// What it is for; what is done with it is recorded under this name.
    pub name: String,
    /// What its bearer may do; at least one.
    pub scopes: BTreeSet<Scope>,
    /// Only these; empty means every tenant.
    pub tenants: BTreeSet<Tenant>,
    /// Only these; empty means every queue.
    pub queues: BTreeSet<QueueName>,
    /// Worth nothing after this long; never without.
    pub expires_in: Option<Duration>,
}

impl TokenWish {
    fn check(&self) -> Result<(), Invalid> {
        let refuse = |problem: &str| Err(Invalid { what: "token", problem: problem.to_owned() });
        if self.name.is_empty() || self.name.len() > NAME_MAX || self.name.chars().any(char::is_control) {
            return refuse("has a name of 1 to 64 bytes without control characters");
        }
        if self.scopes.is_empty() {
            return refuse("needs at least one scope: ingest, work, read, operate or admin");
        }
        if self.scopes.contains(&Scope::Admin) && !(self.tenants.is_empty() && self.queues.is_empty()) {
            return refuse(
                "with the scope admin cannot be limited to tenants or queues: it could make one without limits",
            );
        }
        if self.expires_in.is_some_and(|expiry| expiry > EXPIRY_MAX || expiry.is_zero()) {
            return refuse("expires after 366 days at the latest, or never");
        }
        Ok(())
    }
}

impl Engine {
    /// Makes a token. Its text is in this answer and nowhere else; the store keeps its hash.
    pub async fn make_token(&self, wish: TokenWish, actor: &str) -> Result<(String, ApiToken), EngineError> {
        wish.check()?;
        let made = NewToken::of(clock::secret(), self.chance().number());
        let now = self.time().wall();
        let token = ApiToken {
            id: made.id.clone(),
            name: wish.name,
            scopes: wish.scopes,
            tenants: wish.tenants,
            queues: wish.queues,
            made_by: actor.to_owned(),
            made_at: now,
            expires_at: wish.expires_in.map(|expiry| now.after(expiry)),
            hash: made.hash,
        };
        let body =
            serde_json::to_value(&token).map_err(|e| StoreError::new(ErrorKind::Invalid, e.to_string()))?;
        self.put_document(Shelf::Tokens, &made.id, body, wish.expires_in, true).await?;
        Ok((made.text, token))
    }

    /// All tokens of the store, without their text.
    pub async fn tokens(&self) -> StoreResult<Vec<ApiToken>> {
        let read = |document: Document| {
            let unreadable = |e| StoreError::new(ErrorKind::Corrupt, format!("token {}: {e}", document.name));
            serde_json::from_value(document.body.clone()).map_err(unreadable)
        };
        self.documents(Shelf::Tokens).await?.into_iter().map(read).collect()
    }

    /// Takes a token away, by its id; false when there is none.
    pub async fn revoke_token(&self, id: &str) -> StoreResult<bool> {
        self.remove_document(Shelf::Tokens, id).await
    }
}
