//! From the settings to sources that can be asked: secrets read, descriptions made into adapters.
//!
//! An error names the section and what is missing, never a secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use quell::config::{
    AdapterSettings, MatchSettings, PriceSourceSettings, PriceValueSettings, PricesSettings, SecretSource,
};
use quell::quell_core::event::SourceName;
use quell::secrets;

use crate::PriceSource;
use crate::adapter::{Adapter, EbaySource, JsonSource};
use crate::intake::Attribute;
use crate::matching::{MatchRules, STRENGTH_MAX, Weights};
use crate::money::Currency;
use crate::value::ValueRules;

/// All sources of the configuration.
pub fn sources(
    prices: &PricesSettings,
    env: &BTreeMap<String, String>,
) -> Result<BTreeMap<SourceName, PriceSource>, String> {
    let one = |(name, settings): (&SourceName, &Arc<PriceSourceSettings>)| match source(settings, env) {
        Ok(source) => Ok((name.clone(), source)),
        Err(problem) => Err(format!("[prices.sources.{name}]: {problem}")),
    };
    prices.sources.iter().map(one).collect()
}

/// How values are made.
pub fn value_rules(value: &PriceValueSettings) -> ValueRules {
    ValueRules { half_life: value.half_life, max_age: value.max_age, types: value.types.clone() }
}

fn source(settings: &PriceSourceSettings, env: &BTreeMap<String, String>) -> Result<PriceSource, String> {
    let secret = |source: &SecretSource| secrets::read(source, env).map_err(|error| error.to_string());
    let adapter: Arc<dyn Adapter> = match &settings.adapter {
        AdapterSettings::Json(json) => {
            let secret = json.secret.as_ref().map(secret).transpose()?;
            Arc::new(JsonSource::new(settings, json, secret.as_deref())?)
        }
        AdapterSettings::Ebay(ebay) => {
            let (id, key) = (secret(&ebay.client_id)?, secret(&ebay.client_secret)?);
            Arc::new(EbaySource::new(settings, ebay, &id, &key)?)
        }
    };
    let currency = settings.currency.as_deref().map(Currency::new).transpose();
    Ok(PriceSource {
        adapter,
        rules: rules(&settings.matching),
        currency: currency.map_err(|bad| bad.to_string())?,
        max_pages: settings.max_pages,
    })
}

fn rules(settings: &MatchSettings) -> MatchRules {
    let MatchSettings { year, mintmark, denomination, series, title, .. } = *settings;
    MatchRules {
        weights: Weights { year, mintmark, denomination, series, title },
        exclude: settings.exclude.clone(),
        require: settings.require.iter().filter_map(|name| Attribute::named(name)).collect(),
        min_strength: u8::try_from(settings.min_strength).unwrap_or(STRENGTH_MAX),
    }
}
