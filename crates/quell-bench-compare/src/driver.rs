//! Quell as one of the systems: the shapes of `quell-bench` in a process of its own, with the answer that every driver gives.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use quell_bench::Place;

use crate::answer::Answer;
use crate::sizes::Sizes;

/// `quell SHAPE ADDRESS SIZES`: the address is the URL of a server, or a folder for SQLite.
///
/// # Errors
///
/// When the shape fails, or an event was lost.
pub async fn quell(shape: &str, address: &str, sizes: &str) -> anyhow::Result<Answer> {
    let sizes: Sizes = serde_json::from_str(sizes).context("the sizes are not what drivers get")?;
    let place = if Path::new(address).is_dir() { Place::Folder(address.into()) } else { Place::of(address)? };
    let figures = quell_bench::compare(&place, shape, &sizes.of_quell(), sizes.one()).await?;
    let versions = BTreeMap::from([("Quell".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    Ok(Answer { figures: figures.into_iter().map(|(name, value)| (name, Some(value))).collect(), versions })
}
