//! eBay on this machine: tokens for those who know the client's secret, and the search of the Browse API for those who have one.

use std::sync::Arc;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::request::Parts;
use http::{Response, StatusCode, header};
use quell::clock::Stopwatch;
use serde_json::{Value, json};

use super::catalogue::{Listing, Made};
use super::fault::{refused, unauthorized};
use super::{CLIENT_ID, CLIENT_SECRET, Catalogue, Endpoint, Market, header_text, items, json_answer, pair};
use crate::found::PriceType;

pub(super) const TOKEN_PATH: &str = "/identity/v1/oauth2/token";
pub(super) const SEARCH_PATH: &str = "/buy/browse/v1/item_summary/search";
const SCOPE: &str = "https://api.ebay.com/oauth/api_scope";
const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 200;
const REACH: usize = 10_000;

pub(super) async fn token(market: &Arc<Market>, parts: &Parts, body: &[u8]) -> Response<Body> {
    let (number, fault) = market.note(parts, Endpoint::Token, "", 0);
    let response = match (granted(market, parts, body), fault) {
        (Ok(text), Some(fault)) => fault.spoil(text).await,
        (Ok(text), None) => json_answer(StatusCode::OK, &text),
        (Err((status, error, why)), _) => {
            json_answer(status, &json!({"error": error, "error_description": why}).to_string())
        }
    };
    market.answered(number, response.status());
    response
}

fn granted(
    market: &Market,
    parts: &Parts,
    body: &[u8],
) -> Result<String, (StatusCode, &'static str, &'static str)> {
    let basic = format!("Basic {}", STANDARD.encode(format!("{CLIENT_ID}:{CLIENT_SECRET}")));
    if header_text(parts, &header::AUTHORIZATION) != Some(&basic) {
        return Err((StatusCode::UNAUTHORIZED, "invalid_client", "client authentication failed"));
    }
    let form = header_text(parts, &header::CONTENT_TYPE) == Some("application/x-www-form-urlencoded");
    if !form || pair(body, "grant_type").as_deref() != Some("client_credentials") {
        return Err((StatusCode::BAD_REQUEST, "unsupported_grant_type", "grant type is not supported"));
    }
    if pair(body, "scope").as_deref() != Some(SCOPE) {
        return Err((StatusCode::BAD_REQUEST, "invalid_scope", "the requested scope is invalid"));
    }
    let mut inner = market.lock();
    inner.tokens_made += 1;
    let token = format!("v^1.1#local#{}", inner.tokens_made);
    inner.tokens.insert(token.clone(), Stopwatch::start());
    let life = inner.behaviour.token_life.as_secs();
    let said = json!({"access_token": token, "expires_in": life, "token_type": "Application Access Token"});
    Ok(said.to_string())
}

pub(super) async fn search(market: &Arc<Market>, parts: &Parts) -> Response<Body> {
    let form = parts.uri.query().unwrap_or_default().as_bytes();
    let query = pair(form, "q").unwrap_or_default();
    let offset = pair(form, "offset").map_or(Ok(0), |text| text.parse::<usize>());
    let limit = pair(form, "limit").map_or(Ok(LIMIT_DEFAULT), |text| text.parse::<usize>());
    let from = offset.as_ref().map_or(0, |offset| u64::try_from(*offset).unwrap_or(u64::MAX));
    let noted = market.note(parts, Endpoint::Search, &query, from);
    let page = |catalogue: &Catalogue| {
        if !has_token(market, parts) {
            return Err(unauthorized());
        }
        let marketplace = header::HeaderName::from_static("x-ebay-c-marketplace-id");
        if header_text(parts, &marketplace).is_none() {
            return Err(refused(12021, "The marketplace is missing."));
        }
        if query.trim().is_empty() || query.chars().count() > 100 {
            return Err(refused(12001, "The call must have a valid 'q' query parameter."));
        }
        match (offset, limit) {
            (Ok(offset), Ok(limit @ 1..=LIMIT_MAX)) if offset.is_multiple_of(limit) && offset < REACH => {
                let listings = catalogue.listings(&query, market.opened);
                Ok(result(&listings, &query, offset, limit))
            }
            _ => Err(refused(12005, "The 'limit' or 'offset' value is not valid.")),
        }
    };
    items(market, noted, &query, page).await
}

fn has_token(market: &Market, parts: &Parts) -> bool {
    let inner = market.lock();
    let presented = header_text(parts, &header::AUTHORIZATION).and_then(|text| text.strip_prefix("Bearer "));
    let issued = presented.and_then(|token| inner.tokens.get(token));
    issued.is_some_and(|since| since.elapsed() < inner.behaviour.token_life)
}

fn result(listings: &[Listing], query: &str, offset: usize, limit: usize) -> String {
    let page: Vec<Value> = listings.iter().skip(offset).take(limit).map(item).collect();
    let at = |offset: usize| {
        format!("https://api.example.com{SEARCH_PATH}?q={query}&limit={limit}&offset={offset}")
    };
    let mut said = json!({"href": at(offset), "total": listings.len(), "limit": limit, "offset": offset});
    if offset + limit < listings.len() {
        said["next"] = at(offset + limit).into();
    }
    if offset >= limit {
        said["prev"] = at(offset - limit).into();
    }
    // Where nothing is found, the list is not there at all.
    if !page.is_empty() {
        said["itemSummaries"] = page.into();
    }
    said.to_string()
}

fn item(listing: &Listing) -> Value {
    let made = match listing {
        Listing::Exactly(item) => return item.clone(),
        Listing::Made(made) => made,
    };
    let Made { number, title, price, currency, .. } = made;
    let (auction, price) = (made.price_type == PriceType::Bid, json!({"value": price, "currency": currency}));
    // An address without a number is all that some have.
    let slug = if made.has_id { number.to_string() } else { format!("lot-{number}") };
    let mut item = json!({
        "title": title,
        "itemHref": format!("https://api.example.com/buy/browse/v1/item/v1%7C{number}%7C0"),
        "seller": {"username": "seller_one", "feedbackPercentage": "99.8", "feedbackScore": 1520},
        "condition": "Uncirculated",
        "buyingOptions": [if auction { "AUCTION" } else { "FIXED_PRICE" }],
        "itemWebUrl": format!("https://shop.example.com/itm/{slug}{}", made.tracking),
        "itemCreationDate": moment(made),
        "listingMarketplaceId": "EBAY_US",
    });
    if auction {
        item["currentBidPrice"] = price;
        item["bidCount"] = 4.into();
    } else {
        item["price"] = price;
    }
    if made.has_id {
        item["itemId"] = format!("v1|{number}|0").into();
        item["legacyItemId"] = number.to_string().into();
    }
    item
}

pub(super) fn moment(made: &Made) -> String {
    jiff::Timestamp::from_millisecond(made.listed.as_millis()).unwrap_or_default().to_string()
}
