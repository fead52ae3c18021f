//! Any other signature that is an HMAC-SHA256 over the body: the header, its prefix, hex or base64 and, if there is one, a
//! time that is signed as `<time>.<body>` are settings.

use ::hmac::{KeyInit, Mac};
use sha2::Sha256;

use crate::encoding::{from_base64, from_hex, to_base64, to_hex};
use crate::refusal::{Because, Refusal};
use crate::scheme::{Check, Delivery, Scheme};
use crate::secret::Secret;

/// HMAC-SHA256 over the parts, one after the other.
pub(crate) fn sha256(secret: &Secret, parts: &[&[u8]]) -> Vec<u8> {
    let mut mac =
        ::hmac::Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// How the bytes of a signature are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Digits and letters; both cases are read.
    #[default]
    Hex,
    /// The standard alphabet.
    Base64,
}

impl Encoding {
    fn read(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Encoding::Hex => from_hex(text),
            Encoding::Base64 => from_base64(text),
        }
    }

    fn write(self, bytes: &[u8]) -> String {
        match self {
            Encoding::Hex => to_hex(bytes),
            Encoding::Base64 => to_base64(bytes),
        }
    }
}

/// `scheme = "hmac"` with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hmac {
    /// Which header has the signature.
    pub header: String,
    /// What stands before the signature, such as `sha256=`.
    pub prefix: String,
    /// How it is written there.
    pub encoding: Encoding,
    /// A header with the seconds since 1970; then `<time>.<body>` is signed.
    pub timestamp_header: Option<String>,
}

impl Default for Hmac {
    fn default() -> Self {
        Hmac {
            header: "x-signature".to_owned(),
            prefix: String::new(),
            encoding: Encoding::Hex,
            timestamp_header: None,
        }
    }
}

impl Scheme for Hmac {
    fn name(&self) -> &'static str {
        "hmac"
    }

    fn verify(&self, delivery: &Delivery<'_>, check: &Check<'_>) -> Result<usize, Refusal> {
        let given = delivery.header(&self.header, Because::MissingSignature)?;
        let time = match &self.timestamp_header {
            Some(name) => Some(delivery.header(name, Because::MissingHeader)?),
            None => None,
        };
        let text = given.strip_prefix(self.prefix.as_str());
        let Some(signature) = text.and_then(|text| self.encoding.read(text)) else {
            let form = match self.encoding {
                Encoding::Hex => "hex",
                Encoding::Base64 => "base64",
            };
            let detail = format!("{} is not {:?} and {form}", self.header, self.prefix);
            return Err(Refusal::new(Because::MalformedSignature, detail));
        };
        let body = delivery.body;
        let secret = check.any(&[signature], |secret| match time {
            Some(time) => sha256(secret, &[time.as_bytes(), b".", body]),
            None => sha256(secret, &[body]),
        })?;
        if let (Some(time), Some(name)) = (time, &self.timestamp_header) {
            check.time(time, name)?;
        }
        Ok(secret)
    }

    fn sign(&self, secret: &Secret, _id: &str, now: i64, body: &[u8]) -> Vec<(String, String)> {
        let now = now.to_string();
        let mac = match &self.timestamp_header {
            Some(_) => sha256(secret, &[now.as_bytes(), b".", body]),
            None => sha256(secret, &[body]),
        };
        let signature = format!("{}{}", self.prefix, self.encoding.write(&mac));
        let time = self.timestamp_header.clone().map(|name| (name, now));
        [(self.header.clone(), signature)].into_iter().chain(time).collect()
    }
}
