//! GitHub: `X-Hub-Signature-256: sha256=<hex>`, HMAC-SHA256 of the body. There is no time in it, so an old delivery is told
//! from a new one by its id alone (`X-GitHub-Delivery`). The older SHA-1 header is not looked at.

use crate::encoding::{from_hex, to_hex};
use crate::hmac::sha256;
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::scheme::{Check, Delivery, Scheme};
use crate::secret::Secret;

const SIGNATURE: &str = "x-hub-signature-256";

#[derive(Debug, Clone, Copy)]
pub(crate) struct GitHub;

impl Scheme for GitHub {
    fn name(&self) -> &'static str {
        "github"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let Some(signature) = given.strip_prefix("sha256=").and_then(from_hex) else {
            let detail = format!("{SIGNATURE} is not sha256= and hex");
            return Err(Refusal::new(Because::MalformedSignature, detail));
        };
        check.any(&[signature], |secret| sha256(secret, &[delivery.body]))
    }

    fn usual_id(&self) -> Option<Rule> {
        Some(Rule::Header("x-github-delivery".to_owned()))
    }

    fn usual_headers(&self) -> &'static [&'static str] {
        &["x-github-event"]
    }

    fn sign(&self, secret: &Secret, id: &str, _now: i64, body: &[u8]) -> Vec<(String, String)> {
        let signature = format!("sha256={}", to_hex(&sha256(secret, &[body])));
        vec![(SIGNATURE.to_owned(), signature), ("x-github-delivery".to_owned(), id.to_owned())]
    }
}
