//! No proof at all, for tests on one machine. A page in a browser can send such a request to this very machine, so what
//! browsers add to requests that a page makes is refused.

use crate::refusal::{Because, Refusal};
use crate::scheme::{Check, Delivery, Proof, Scheme};
use crate::secret::{BadSecret, Secret};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Open;

impl Scheme for Open {
    fn name(&self) -> &'static str {
        "none"
    }

    fn proof(&self) -> Proof {
        Proof::None
    }

    fn secret(&self, _: &str) -> Result<Secret, BadSecret> {
        Err(BadSecret("an endpoint without a proof has no secret".to_owned()))
    }

    fn verify(&self, delivery: &Delivery<'_>, _: &Check<'_>) -> Result<usize, Refusal> {
        for name in ["origin", "sec-fetch-site"] {
            if delivery.headers.contains_key(name) {
                let detail = format!("a page in a browser sent it ({name} is set)");
                return Err(Refusal::new(Because::FromBrowser, detail));
            }
        }
        Ok(0)
    }
}
