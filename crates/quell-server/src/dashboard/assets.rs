//! What pages load: one stylesheet, two scripts of ours, htmx and the mark, compiled into the program.
//!
//! Addresses carry a piece of the content's hash, so browsers may keep them for a year; without it, or with an old one, they
//! ask again and are told by the tag whether anything is new.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Answer, Problem};
use crate::{Path, Query};

struct Asset {
    name: &'static str,
    media: &'static str,
    content: &'static [u8],
    version: String,
}

static ASSETS: LazyLock<[Asset; 6]> = LazyLock::new(|| {
    let asset = |name, media, content: &'static [u8]| {
        let digest = Sha256::digest(content);
        let version = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Asset { name, media, content, version }
    };
    [
        asset("quell.css", "text/css; charset=utf-8", include_bytes!("../../assets/quell.css")),
        asset("quell.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/quell.js")),
        asset(
            "playground.js",
            "text/javascript; charset=utf-8",
            include_bytes!("../../assets/playground.js"),
        ),
        asset("board.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/board.js")),
        asset("htmx.min.js", "text/javascript; charset=utf-8", include_bytes!("../../assets/htmx.min.js")),
        asset("mark.svg", "image/svg+xml", include_bytes!("../../assets/mark.svg")),
    ]
});

fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The address of an asset as it is now.
pub(super) fn place(name: &str) -> String {
    let version = find(name).map_or("", |asset| &asset.version);
    format!("/ui/assets/{name}?v={version}")
}

#[derive(Debug, Deserialize)]
pub(super) struct Version {
    v: Option<String>,
}

pub(super) async fn asset(
    Path(name): Path<String>,
    Query(asked): Query<Version>,
    headers: HeaderMap,
) -> Answer<Response> {
    let asset = find(&name).ok_or_else(|| Problem::not_found("there is no such file"))?;
    let tag = format!("\"{}\"", asset.version);
    let kept = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let mut response = if kept.is_some_and(|kept| kept.split(',').any(|one| one.trim() == tag)) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        asset.content.into_response()
    };
    let for_a_year = asked.v.as_deref() == Some(&asset.version);
    let cache = if for_a_year { "public, max-age=31536000, immutable" } else { "no-cache" };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
