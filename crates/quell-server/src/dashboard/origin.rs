//! Only our own pages may send: a form of another site is refused before anybody looks who is logged in.
//!
//! Browsers say where a request comes from in `Sec-Fetch-Site`, which no page can forge; older ones say it in `Origin`, which
//! has to be the host that was asked. A request without either is no browser's of the last years: it is taken unless it
//! brings a cookie along.

use axum::body::Body;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method, Request};

use crate::error::Problem;

pub(super) async fn check(request: Request<Body>, next: Next) -> Response {
    if is_ours(&request) {
        return next.run(request).await;
    }
    let detail = "this was sent by another site, or by something that does not say where it comes from";
    Problem::forbidden(detail).at("Origin").into_response()
}

fn is_ours(request: &Request<Body>) -> bool {
    if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return true;
    }
    let headers = request.headers();
    if headers.contains_key("sec-fetch-site") {
        return matches!(only(headers, "sec-fetch-site"), Some("same-origin" | "none"));
    }
    if headers.contains_key(ORIGIN) {
        let host = request.uri().authority().map(|authority| authority.as_str());
        let host = host.or_else(|| only(headers, HOST.as_str()));
        let origin = only(headers, ORIGIN.as_str()).and_then(|origin| Some(origin.split_once("://")?.1));
        return matches!((origin, host), (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host));
    }
    !headers.contains_key(COOKIE)
}

/// The value of a header that stands there once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok();
    value.filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/ui/logout").header(HOST, "quell.test:7717");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        is_ours(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn a_form_of_another_site_is_refused() {
        let cookie = ("cookie", "quell_session=x");
        let table: [(&[(&str, &str)], bool); 14] = [
            (&[("sec-fetch-site", "same-origin"), cookie], true),
            (&[("sec-fetch-site", "none"), cookie], true),
            (&[("sec-fetch-site", "same-site"), cookie], false),
            (&[("sec-fetch-site", "cross-site"), cookie], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "")], false),
            (&[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "cross-site"), ("origin", "http://quell.test:7717")], false),
            (&[("origin", "http://quell.test:7717"), cookie], true),
            (&[("origin", "http://quell.test")], false),
            (&[("origin", "https://elsewhere.test")], false),
            (&[("origin", "null")], false),
            (&[cookie], false),
            (&[], true),
        ];
        for (headers, wanted) in table {
            assert_eq!(ours(Method::POST, headers), wanted, "{headers:?}");
            assert!(ours(Method::GET, headers), "{headers:?}");
        }
    }
}
