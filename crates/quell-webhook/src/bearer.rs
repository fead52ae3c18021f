//! A word that the sender knows, as `Authorization: Bearer …` or in a header of its own. It proves the sender and not the
//! body, and everybody who has seen one delivery knows it: so it is never kept, and the endpoint is marked.

use crate::refusal::{Because, Refusal};
use crate::scheme::{Check, Delivery, Proof, Scheme};
use crate::secret::Secret;

/// `scheme = "bearer"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// In small letters; `authorization` means that the word `Bearer` stands before the token.
    pub header: String,
}

impl Default for Bearer {
    fn default() -> Self {
        Bearer { header: "authorization".to_owned() }
    }
}

impl Scheme for Bearer {
    fn name(&self) -> &'static str {
        "bearer"
    }

    fn proof(&self) -> Proof {
        Proof::Bearer
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(&self.header, Because::MissingSignature)?;
        let token = if self.header == "authorization" {
            // The name of the method is not case-sensitive (RFC 9110).
            match given.split_once(' ') {
                Some((method, token)) if method.eq_ignore_ascii_case("bearer") => token.trim(),
                _ => {
                    let detail = "authorization is not Bearer and a token";
                    return Err(Refusal::new(Because::MalformedSignature, detail));
                }
            }
        } else {
            given
        };
        let known = check.any(&[token.as_bytes().to_vec()], |secret| secret.bytes().to_vec());
        known.map_err(|_| Refusal::new(Because::BadSignature, "the token is none of ours"))
    }

    fn confidential(&self) -> Vec<String> {
        vec!["authorization".to_owned(), self.header.clone()]
    }

    fn sign(&self, secret: &Secret, _id: &str, _now: i64, _body: &[u8]) -> Vec<(String, String)> {
        let token = String::from_utf8_lossy(secret.bytes());
        let value =
            if self.header == "authorization" { format!("Bearer {token}") } else { token.into_owned() };
        vec![(self.header.clone(), value)]
    }
}
