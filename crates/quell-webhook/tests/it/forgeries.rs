//! Each scheme signs a delivery that it accepts, and accepts nothing that differs from it by a bit.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use quell_webhook::{
    Bearer, Because, Delivery, Encoding, Endpoint, Hmac, Proof, Rules, Scheme, Schemes, Secret,
};

const NOW: i64 = 1_760_000_000;

fn schemes() -> Vec<Arc<dyn Scheme>> {
    let known = Schemes::built_in();
    let mut all: Vec<Arc<dyn Scheme>> = ["standard", "github", "stripe", "slack", "hmac", "bearer"]
        .map(|name| known.get(name).expect("it is built in"))
        .into();
    all.push(Arc::new(Hmac {
        header: "x-mac".into(),
        prefix: "mac:".into(),
        encoding: Encoding::Base64,
        timestamp_header: Some("x-time".into()),
    }));
    all.push(Arc::new(Bearer { header: "x-key".into() }));
    all
}

fn endpoint(scheme: &Arc<dyn Scheme>, secrets: Vec<Secret>) -> Endpoint {
    let tolerance = Duration::from_secs(300);
    let (scheme, rules) = (scheme.clone(), Rules::default());
    Endpoint { scheme, secrets, verify: Vec::new(), tolerance, public_url: None, rules }
}

fn signed(scheme: &Arc<dyn Scheme>, secret: &Secret, now: i64, body: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in scheme.sign(secret, "evt_1", now, body) {
        headers.insert(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    headers
}

fn verdict(endpoint: &Endpoint, headers: &HeaderMap, body: &[u8], now: i64) -> Result<usize, Because> {
    let delivery = Delivery { method: &Method::POST, target: "/", rest: None, headers, body };
    endpoint.verify(&delivery, now).map_err(|refusal| refusal.because)
}

fn secret(byte: u8) -> Secret {
    // Visible, as a bearer's must be.
    Secret::new(vec![byte; 32])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_signed_is_accepted_and_no_other_byte(
        body in proptest::collection::vec(any::<u8>(), 1..200),
        at in any::<prop::sample::Index>(),
        bit in 0..8u8,
    ) {
        for scheme in schemes() {
            let endpoint = endpoint(&scheme, vec![secret(b'o'), secret(b'n')]);
            for (number, byte) in [(0, b'o'), (1, b'n')] {
                let headers = signed(&scheme, &secret(byte), NOW, &body);
                prop_assert_eq!(verdict(&endpoint, &headers, &body, NOW), Ok(number));
                if scheme.proof() == Proof::Signed {
                    let mut other = body.clone();
                    other[at.index(body.len())] ^= 1 << bit;
                    prop_assert_eq!(verdict(&endpoint, &headers, &other, NOW), Err(Because::BadSignature));
                    let mut longer = body.clone();
                    longer.push(b' ');
                    prop_assert_eq!(verdict(&endpoint, &headers, &longer, NOW), Err(Because::BadSignature));
                }
            }
            let stranger = signed(&scheme, &secret(b's'), NOW, &body);
            prop_assert_eq!(verdict(&endpoint, &stranger, &body, NOW), Err(Because::BadSignature));
        }
    }

    #[test]
    fn no_header_whatever_it_says_is_taken_or_makes_a_panic(
        texts in proptest::collection::vec("[ -~]{0,80}", 3),
        which in 0..8usize,
    ) {
        let scheme = &schemes()[which];
        let endpoint = endpoint(scheme, vec![secret(b'o')]);
        let mut headers = signed(scheme, &secret(b'o'), NOW, b"{}");
        let names: Vec<HeaderName> = headers.keys().cloned().collect();
        for (name, text) in names.iter().zip(&texts) {
            headers.insert(name, HeaderValue::from_str(text).unwrap());
        }
        let verdict = verdict(&endpoint, &headers, b"{}", NOW);
        prop_assert!(verdict.is_err());
    }
}

#[test]
fn a_time_is_good_to_the_second_and_only_where_it_is_signed() {
    for scheme in schemes() {
        let endpoint = endpoint(&scheme, vec![secret(b'o')]);
        let timed =
            signed(&scheme, &secret(b'o'), NOW, b"{}") != signed(&scheme, &secret(b'o'), NOW + 1, b"{}");
        for (sent, wanted) in [
            (NOW - 300, Ok(0)),
            (NOW - 301, Err(Because::Stale)),
            (NOW + 300, Ok(0)),
            (NOW + 301, Err(Because::Future)),
        ] {
            let headers = signed(&scheme, &secret(b'o'), sent, b"{}");
            let wanted = if timed { wanted } else { Ok(0) };
            assert_eq!(verdict(&endpoint, &headers, b"{}", NOW), wanted, "{} {sent}", scheme.name());
        }
    }
}

#[test]
fn a_header_that_is_there_twice_is_refused() {
    for scheme in schemes() {
        let endpoint = endpoint(&scheme, vec![secret(b'o')]);
        let good = signed(&scheme, &secret(b'o'), NOW, b"{}");
        for name in good.keys().filter(|name| *name != "x-github-delivery") {
            let mut headers = good.clone();
            headers.append(name, good[name].clone());
            assert!(verdict(&endpoint, &headers, b"{}", NOW).is_err(), "{} {name}", scheme.name());
            headers.remove(name);
            assert!(verdict(&endpoint, &headers, b"{}", NOW).is_err(), "{} {name}", scheme.name());
        }
    }
}

#[test]
fn a_secret_of_another_endpoint_or_none_at_all_proves_nothing() {
    for scheme in schemes() {
        let headers = signed(&scheme, &secret(b'o'), NOW, b"{}");
        for secrets in [vec![], vec![secret(b'x')]] {
            let endpoint = endpoint(&scheme, secrets);
            assert_eq!(verdict(&endpoint, &headers, b"{}", NOW), Err(Because::BadSignature));
        }
    }
}
