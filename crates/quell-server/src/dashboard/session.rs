//! Who is logged in to the dashboard: a token is shown once, and a cookie stands for it afterwards.
//!
//! The cookie is `id.expiry.seal`, and the seal is an HMAC over the first two, keyed with the hash of the token that the store
//! keeps. So no server has to remember anything, every server of a store knows the cookie again, and a token that is taken
//! away takes its logins with it. The token itself comes in the body of a form, never in an address, and is not kept.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use quell::quell_core::clock::Timestamp;
use quell::tokens::{ApiToken, Scope};
use serde::Deserialize;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::PageAnswer;
use super::shell::{self, LoginPage};
use crate::accept::Peer;
use crate::app::App;
use crate::auth::{self, Principal};
use crate::error::{Answer, Problem};
use crate::{Query, body, limits};

const NAME: &str = "quell_session";
const ATTRIBUTES: &str = "HttpOnly; SameSite=Strict; Path=/";
const NO_COOKIE: &str = "quell_session=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0";
/// A form with a token and a short address.
const FORM_BYTES: usize = 8 * 1024;

/// Who has sent this, if they are logged in or need not be.
pub(super) async fn visitor(app: &App, headers: &HeaderMap) -> Answer<Option<Principal>> {
    if app.tokens.is_open(app).await? {
        return Ok(Some(Principal::anybody()));
    }
    for value in cookies(headers) {
        if let Some(principal) = known(app, value).await? {
            return Ok(Some(principal));
        }
    }
    Ok(None)
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == NAME).map(|(_, value)| value)
}

async fn known(app: &App, cookie: &str) -> Answer<Option<Principal>> {
    let Some((signed, seal)) = cookie.rsplit_once('.') else { return Ok(None) };
    let Some((id, expiry)) = signed.split_once('.') else { return Ok(None) };
    let Ok(expiry) = expiry.parse::<i64>() else { return Ok(None) };
    let Some(token) = app.tokens.by_id(app, id).await? else { return Ok(None) };
    let is_sealed: bool = seal_of(&token, signed).as_bytes().ct_eq(seal.as_bytes()).into();
    let lasts = app.wall() < Timestamp::from_millis(expiry);
    Ok((is_sealed && lasts).then(|| Principal::of(token)))
}

fn cookie_for(token: &ApiToken, now: Timestamp) -> String {
    let signed = format!("{}.{}", token.id, now.after(limits::SESSION).as_millis());
    format!("{signed}.{}", seal_of(token, &signed))
}

fn seal_of(token: &ApiToken, signed: &str) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(token.hash.as_bytes()).expect("a key of any length is taken");
    mac.update(signed.as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Pages lead to the login and back; what a script fetches is told plainly.
pub(super) fn turn_away(request: &Request<Body>) -> Response {
    let path = request.uri().path();
    let is_page = request.method() == http::Method::GET && !shell::is_fragment(request.headers());
    if !is_page || path == "/ui/stream" {
        return Problem::unauthorized("log in first: /ui/login").into_response();
    }
    let wanted = request.uri().path_and_query().map_or("/", |wanted| wanted.as_str());
    if wanted == "/" {
        return see_other("/ui/login");
    }
    let next: String = form_urlencoded::byte_serialize(wanted.as_bytes()).collect();
    see_other(&format!("/ui/login?next={next}"))
}

pub(super) fn see_other(place: &str) -> Response {
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(LOCATION, place)]).into_response()
}

/// Where to go after the login: a page of ours, whatever the address says.
fn local(next: &str) -> &str {
    let page = next == "/" || next.starts_with("/?") || next.starts_with("/ui/");
    // Browsers read a backslash as a slash, and leave out line breaks and tabs.
    let plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if page && plain && !next.contains("//") { next } else { "/" }
}

#[derive(Debug, Deserialize)]
pub(super) struct Next {
    next: Option<String>,
}

pub(super) async fn form(
    State(app): State<Arc<App>>,
    Query(query): Query<Next>,
    request: Request<Body>,
) -> PageAnswer {
    let next = local(query.next.as_deref().unwrap_or("/"));
    if visitor(&app, request.headers()).await?.is_some() {
        return Ok(see_other(next));
    }
    Ok(shell::html(LoginPage { next, problem: None }.text()))
}

pub(super) async fn login(State(app): State<Arc<App>>, request: Request<Body>) -> PageAnswer {
    let from = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    if body::media_type(request.headers())? != "application/x-www-form-urlencoded" {
        return Err(Problem::unsupported("send the token in a form").into());
    }
    let bytes = body::read(request, FORM_BYTES).await?;
    let (mut text, mut next) = (String::new(), String::new());
    for (name, value) in form_urlencoded::parse(&bytes) {
        match &*name {
            "token" => text = value.trim().to_owned(),
            "next" => next = value.into_owned(),
            _ => {}
        }
    }
    let next = local(&next);
    match enter(&app, from, text).await {
        Ok(cookie) => {
            let mut response = see_other(next);
            if let Some(cookie) = cookie {
                response.headers_mut().insert(SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(problem) => {
            let page = LoginPage { next, problem: Some(problem.detail()) }.text();
            Ok(shell::with_status_of(problem, page))
        }
    }
}

/// The cookie of one who shows a token; none is needed where everybody may enter.
async fn enter(app: &App, from: Option<std::net::IpAddr>, text: String) -> Answer<Option<HeaderValue>> {
    let principal = auth::principal(app, from, Ok(Some(text))).await?;
    if !principal.allows(Scope::Read) {
        return Err(Problem::forbidden("this token may not look: the dashboard needs the scope `read`"));
    }
    let Some(id) = principal.token_id() else { return Ok(None) };
    let gone = || Problem::unauthorized("this token was taken away a moment ago");
    let token = app.tokens.by_id(app, id).await?.ok_or_else(gone)?;
    let cookie = format!("{NAME}={}; {ATTRIBUTES}", cookie_for(&token, app.wall()));
    HeaderValue::from_str(&cookie).map(Some).map_err(|_| gone())
}

pub(super) async fn logout() -> Response {
    let mut response = see_other("/ui/login");
    response.headers_mut().insert(SET_COOKIE, HeaderValue::from_static(NO_COOKIE));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_login_one_stays_here() {
        for next in ["/", "/?a=b", "/ui/lanes?queue=chat&key=%2F", "/ui/runs/run_1_2"] {
            assert_eq!(local(next), next);
        }
        for next in [
            "",
            "//elsewhere.test",
            "/\\elsewhere.test",
            "/ui/\\elsewhere.test",
            "/ui//elsewhere.test",
            "https://elsewhere.test/ui/",
            "javascript:alert(1)",
            "ui/lanes",
            "/\t/elsewhere.test",
            "/ui/\r\nSet-Cookie: a=b",
            "/v1/stream",
            "/uix",
        ] {
            assert_eq!(local(next), "/", "{next:?}");
        }
    }
}
