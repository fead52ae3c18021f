//! Standard Webhooks 1.0: `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,<base64> v1,<base64>`.
//!
//! Signed is `<id>.<timestamp>.<body>` with HMAC-SHA256. The secret is `whsec_` and base64. An id with a dot is refused:
//! the same signed text could be taken apart in another place. Ours go out signed the same way ([`Standard::signatures`]).

use crate::encoding::{from_base64, to_base64};
use crate::hmac::sha256;
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::scheme::{Check, Delivery, Scheme};
use crate::secret::{BadSecret, Secret};

/// Names the delivery; the same when it is sent again.
pub const ID: &str = "webhook-id";
/// When it was sent, seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// One for each secret, separated by spaces.
pub const SIGNATURE: &str = "webhook-signature";

/// Each costs a comparison; a sender that changes its secret needs two.
const SIGNATURES_MAX: usize = 16;
/// As long as the id of an event may be.
const ID_BYTES_MAX: usize = 256;

/// [Standard Webhooks](https://www.standardwebhooks.com/), which is also how Quell signs.
#[derive(Debug, Clone, Copy)]
pub struct Standard;

impl Standard {
    /// The text of a secret made of these bytes, which nobody can guess.
    pub fn new_secret(bytes: &[u8; 32]) -> String {
        format!("whsec_{}", to_base64(bytes))
    }

    /// The value of `webhook-signature`: one signature for each secret, so that a receiver may know any of them.
    pub fn signatures(secrets: &[Secret], id: &str, now: i64, body: &[u8]) -> String {
        let now = now.to_string();
        let one = |secret: &Secret| format!("v1,{}", to_base64(&sha256(secret, &signed(id, &now, body))));
        secrets.iter().map(one).collect::<Vec<_>>().join(" ")
    }
}

impl Standard {
    /// Does the work of a check and finds nothing: an endpoint that does not exist takes as long as one that does.
    pub fn sham(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        check.any(&[vec![0; 32]], |secret| sha256(secret, &[delivery.body]))
    }
}

fn signed<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}

impl Scheme for Standard {
    fn name(&self) -> &'static str {
        "standard"
    }

    fn secret(&self, text: &str) -> Result<Secret, BadSecret> {
        let bad = |problem: &str| BadSecret(problem.to_owned());
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        let bytes = from_base64(encoded)
            .ok_or_else(|| bad("it is not whsec_ and base64: `openssl rand -base64 32` makes one"))?;
        match bytes.len() {
            24..=64 => Ok(Secret::new(bytes)),
            n => Err(BadSecret(format!("it is base64 of {n} bytes; 24 to 64 are allowed"))),
        }
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let id = delivery.header(ID, Because::MissingHeader)?;
        let timestamp = delivery.header(TIMESTAMP, Because::MissingHeader)?;
        let plain = id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.');
        if !plain || id.len() > ID_BYTES_MAX {
            let detail = format!("{ID} is 1 to {ID_BYTES_MAX} visible characters and no dot");
            return Err(Refusal::new(Because::MalformedHeader, detail));
        }
        let v1: Vec<Vec<u8>> = given
            .split(' ')
            .filter_map(|entry| entry.strip_prefix("v1,"))
            .take(SIGNATURES_MAX)
            .filter_map(from_base64)
            .collect();
        if v1.is_empty() {
            let detail = format!("{SIGNATURE} has no signature of version v1 that can be read");
            return Err(Refusal::new(Because::MalformedSignature, detail));
        }
        // The proof comes before the time: a stranger learns nothing of our clock.
        let secret = check.any(&v1, |secret| sha256(secret, &signed(id, timestamp, delivery.body)))?;
        check.time(timestamp, TIMESTAMP)?;
        Ok(secret)
    }

    fn usual_id(&self) -> Option<Rule> {
        Some(Rule::Header(ID.to_owned()))
    }

    fn sign(&self, secret: &Secret, id: &str, now: i64, body: &[u8]) -> Vec<(String, String)> {
        let signature = Standard::signatures(std::slice::from_ref(secret), id, now, body);
        [(ID, id.to_owned()), (TIMESTAMP, now.to_string()), (SIGNATURE, signature)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "the other library looks at the clock by itself")]
    #[test]
    fn another_library_accepts_what_is_signed_here() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        let text = "whsec_cXVlbGwtZml4dHVyZS1zdGFuZGFyZC1zZWNyZXQtMDE=";
        let ours = [Standard.secret(text).unwrap(), Secret::new([7; 32])];
        let theirs = standardwebhooks::Webhook::new(text).unwrap();
        for body in [&b"{}"[..], b"", b"\xf0\x9f\x90\x8c {\"a\": 1.0}\n"] {
            let mut headers = HeaderMap::new();
            headers.insert(ID, "run_1_2-0".parse().unwrap());
            headers.insert(TIMESTAMP, now.into());
            let value = Standard::signatures(&ours, "run_1_2-0", now, body);
            headers.insert(SIGNATURE, value.parse().unwrap());
            theirs.verify(body, &headers).unwrap();
            assert!(theirs.verify(b"other", &headers).is_err());
        }
    }

    #[test]
    fn a_secret_is_base64_of_24_to_64_bytes_with_or_without_prefix_and_padding() {
        let encoded = |n: usize| to_base64(&vec![1; n]);
        for n in [24, 32, 64] {
            let padded = encoded(n);
            for text in [padded.clone(), format!("whsec_{padded}"), padded.trim_end_matches('=').to_owned()] {
                assert_eq!(Standard.secret(&text), Ok(Secret::new(vec![1; n])), "{n}");
            }
        }
        for text in [encoded(23), encoded(65), String::new(), "whsec_".to_owned(), "whsec_!".repeat(9)] {
            let problem = Standard.secret(&text).unwrap_err().to_string();
            assert!(text.len() < 8 || !problem.contains(&text), "{problem}");
        }
    }
}
