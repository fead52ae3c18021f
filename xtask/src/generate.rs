//! Rewrites the committed files that are printed by our own programs.
//!
//! Both files are for readers: the schema a database ends up with after all migrations, and the JSON schema that
//! editors use for `quell.toml`. They are committed so that nobody has to run anything to read them, and generated
//! so that they cannot drift; tests beside their sources compare them with the truth. A file is replaced only when
//! the program succeeded and printed something, and an unchanged file is left alone, so its time stamp stays.

use std::path::Path;

use anyhow::Context as _;

use crate::{Place, process};

/// `crates/quell-store-sqlite/schema.sql`, from a database migrated to the newest version.
pub(crate) fn schema(place: &Place) -> anyhow::Result<()> {
    let printed = process::capture(place.cargo(&[
        "run",
        "--quiet",
        "--package",
        "quell-store-sqlite",
        "--example",
        "dump_schema",
    ]))?;
    write(&place.root, "crates/quell-store-sqlite/schema.sql", &printed)
}

/// `docs/reference/quell.schema.json`, from the types that read the configuration.
pub(crate) fn config_schema(place: &Place) -> anyhow::Result<()> {
    let printed = process::capture(place.cargo(&[
        "run",
        "--quiet",
        "--package",
        "quell-cli",
        "--",
        "check",
        "--schema",
    ]))?;
    write(&place.root, "docs/reference/quell.schema.json", &printed)
}

fn write(root: &Path, name: &str, printed: &[u8]) -> anyhow::Result<()> {
    anyhow::ensure!(
        !printed.trim_ascii().is_empty(),
        "the program printed nothing; {name} is left as it was"
    );
    let path = root.join(name);
    if std::fs::read(&path).is_ok_and(|old| old == printed) {
        println!("{name} is up to date");
        return Ok(());
    }
    let folder = path.parent().context("the file lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {name}"))?;
    std::fs::write(&path, printed).with_context(|| format!("cannot write {name}"))?;
    println!("{name} written, {} bytes", printed.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_answer_never_replaces_a_file() {
        let root = std::env::temp_dir().join(format!("quell-xtask-generate-{}", std::process::id()));
        write(&root, "made/file.sql", b"create table lanes;\n").unwrap();
        assert!(write(&root, "made/file.sql", b" \n").is_err());
        assert_eq!(std::fs::read(root.join("made/file.sql")).unwrap(), b"create table lanes;\n");
        std::fs::remove_dir_all(root).unwrap();
    }
}
