//! A plain shop that answers with JSON: pages by number, by count or by a link, prices as numbers, and a key in a header.

use std::sync::Arc;

use axum::body::Body;
use http::request::Parts;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::catalogue::{Listing, Made, number};
use super::ebay::moment;
use super::{Catalogue, Endpoint, Market, SHOP_KEY, header_text, items, pair};
use crate::found::PriceType;

pub(super) const PATH: &str = "/shop/search";
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = 500;

pub(super) async fn search(market: &Arc<Market>, parts: &Parts) -> Response<Body> {
    let form = parts.uri.query().unwrap_or_default().as_bytes();
    let count = |name: &str| pair(form, name).and_then(|text| text.parse::<usize>().ok());
    let query = pair(form, "q").unwrap_or_default();
    let limit = count("limit").unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let page = count("page").unwrap_or(1).max(1);
    let offset = count("offset").unwrap_or((page - 1).saturating_mul(limit));
    let noted = market.note(parts, Endpoint::Shop, &query, u64::try_from(offset).unwrap_or(u64::MAX));
    let answer = |catalogue: &Catalogue| {
        if header_text(parts, &header::HeaderName::from_static("x-api-key")) != Some(SHOP_KEY) {
            return Err((StatusCode::UNAUTHORIZED, json!({"message": "no such key"}).to_string()));
        }
        let listings: Vec<Value> =
            catalogue.listings(&query, market.opened).iter().filter_map(item).collect();
        let total = listings.len();
        let results: Vec<Value> = listings.into_iter().skip(offset).take(limit).collect();
        let encoded: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let more = offset + limit < total;
        let next = more.then(|| format!("{PATH}?q={encoded}&limit={limit}&offset={}", offset + limit));
        Ok(json!({"total": total, "results": results, "next": next}).to_string())
    };
    items(market, noted, &query, answer).await
}

fn item(listing: &Listing) -> Option<Value> {
    let Listing::Made(made) = listing else { return None };
    let Made { number: sku, title, price, currency, .. } = made;
    let state = match made.price_type {
        PriceType::Ask => "BUY_NOW",
        PriceType::Sold => "ENDED",
        PriceType::Bid => "BIDDING",
    };
    let id = made.has_id.then_some(sku);
    Some(json!({
        "sku": id,
        "name": title,
        "price": {"amount": number(price), "currency": currency},
        "link": format!("https://shop.example.com/c/{sku}{}", made.tracking),
        "listed": moment(made),
        "state": state,
    }))
}
