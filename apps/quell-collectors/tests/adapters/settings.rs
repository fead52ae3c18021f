//! From a configuration to sources: what is missing is named, and no secret is.

use std::collections::BTreeMap;

use quell_collectors::intake::Attribute;
use quell_collectors::live;
use quell_collectors::local::{Catalogue, LocalMarket};
use quell_collectors::matching::MatchRules;
use quell_collectors::money::Currency;
use quell_collectors::value::ValueRules;

use crate::world::{World, env, settings};

#[tokio::test]
async fn a_source_is_what_its_section_says() {
    let world = World::with(Catalogue::generated(1), |settings| {
        settings.replace("[prices.sources.shop]\n", "[prices.sources.shop]\nmax_pages = 3\nmatch = { year = 7, require = [\"series\"], min_strength = 9 }\n")
    })
    .await;
    let (ebay, shop) = (world.source("ebay"), world.source("shop"));
    assert_eq!(ebay.rules, MatchRules::default(), "the defaults of a configuration are those of the rules");
    assert_eq!((ebay.currency, ebay.max_pages), (Some(Currency::USD), quell_collectors::PAGES_DEFAULT));
    assert_eq!(ebay.adapter.base_url(), world.market.url());
    assert_eq!((shop.currency, shop.max_pages, shop.rules.weights.year), (None, 3, 7));
    assert_eq!((shop.rules.require.as_slice(), shop.rules.min_strength), (&[Attribute::Series][..], 9));
    assert_eq!(shop.adapter.base_url(), world.market.url());
    let settings = world.engine.settings();
    let prices = settings.prices.as_ref().unwrap();
    assert_eq!(live::value_rules(&prices.value), ValueRules::default());
}

#[tokio::test]
async fn a_missing_secret_is_named_by_its_section_and_place() {
    let market = LocalMarket::start(Catalogue::generated(1)).await.unwrap();
    let settings = settings(&market.settings(), "sqlite:unused.db").unwrap();
    let prices = settings.prices.as_ref().unwrap();
    for (name, section) in
        [("LOCAL_EBAY_ID", "ebay"), ("LOCAL_EBAY_SECRET", "ebay"), ("LOCAL_SHOP_KEY", "shop")]
    {
        let mut env = env();
        env.remove(name);
        let said = live::sources(prices, &env).map(|_| ()).unwrap_err();
        assert!(said.starts_with(&format!("[prices.sources.{section}]")) && said.contains(name), "{said}");
        env.insert(name.to_owned(), "open\nsesame".to_owned());
        let shown = live::sources(prices, &env).map(|sources| sources.len());
        match section {
            "shop" => {
                let said = shown.unwrap_err();
                assert!(said.contains("x-api-key") && !said.contains("sesame"), "{said}");
            }
            // Base64 takes anything.
            _ => assert_eq!(shown, Ok(2)),
        }
    }
    assert!(live::sources(prices, &BTreeMap::new()).is_err());
}
