//! Stripe: `Stripe-Signature: t=<seconds>,v1=<hex>,v1=<hex>,v0=…`. Signed is `<t>.<body>` with HMAC-SHA256; the secret is the
//! whole text with its `whsec_`. Stripe's own library takes deliveries from the future; we do not: nothing honest sends them.

use crate::encoding::{from_hex, to_hex};
use crate::hmac::sha256;
use crate::refusal::{Because, Refusal};
use crate::rule::Rule;
use crate::scheme::{Check, Delivery, Scheme};
use crate::secret::Secret;

const SIGNATURE: &str = "stripe-signature";
/// Two while a secret is changed.
const SIGNATURES_MAX: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Stripe;

fn signed<'a>(time: &'a str, body: &'a [u8]) -> [&'a [u8]; 3] {
    [time.as_bytes(), b".", body]
}

impl Scheme for Stripe {
    fn name(&self) -> &'static str {
        "stripe"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(SIGNATURE, Because::MissingSignature)?;
        let malformed =
            |detail: &str| Refusal::new(Because::MalformedSignature, format!("{SIGNATURE} {detail}"));
        let (mut time, mut v1) = (None, Vec::new());
        for part in given.split(',') {
            match part.trim().split_once('=') {
                Some(("t", value)) if time.is_none() => time = Some(value),
                Some(("t", _)) => return Err(malformed("has two times")),
                Some(("v1", value)) if v1.len() < SIGNATURES_MAX => v1.extend(from_hex(value)),
                _ => {}
            }
        }
        let time = time.ok_or_else(|| malformed("has no time t="))?;
        if v1.is_empty() {
            return Err(malformed("has no signature v1= in hex"));
        }
        let secret = check.any(&v1, |secret| sha256(secret, &signed(time, delivery.body)))?;
        check.time(time, SIGNATURE)?;
        Ok(secret)
    }

    fn usual_id(&self) -> Option<Rule> {
        Some(Rule::Pointer("/id".to_owned()))
    }

    fn sign(&self, secret: &Secret, _id: &str, now: i64, body: &[u8]) -> Vec<(String, String)> {
        let time = now.to_string();
        let signature = to_hex(&sha256(secret, &signed(&time, body)));
        vec![(SIGNATURE.to_owned(), format!("t={time},v1={signature}"))]
    }
}
