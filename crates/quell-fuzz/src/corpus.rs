//! The inputs that are kept: one file each, in a folder per target.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use quell_sim::chance::hash;

/// Where the inputs of a target are.
pub fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The inputs of a target, always in the same order.
pub fn read(target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder(target))? {
        let place = entry?.path();
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        inputs.push((name, fs::read(&place)?));
    }
    inputs.sort();
    Ok(inputs)
}

/// Keeps an input that broke something.
pub fn keep(target: &str, input: &[u8]) -> io::Result<PathBuf> {
    let place = folder(target).join(format!("found-{:016x}", hash(input)));
    fs::create_dir_all(folder(target))?;
    fs::write(&place, input)?;
    Ok(place)
}
