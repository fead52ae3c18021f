//! Is every dependency wanted, and said why? Part of the part `docs`.
//!
//! Direct dependencies are declared once, in the `Cargo.toml` of the workspace; `docs/design/dependencies.md` gives each of
//! them a row with its reason. A row without a dependency, a dependency without a row or without a user, and a member that
//! brings in one of its own are findings. So is a member that does not inherit the lints of the workspace, because they are
//! what forbids `unsafe`.
//!
//! The files are read line by line, as they are laid out here: a TOML parser would be one more thing to compile before the
//! first check can run.

use crate::docs::Files;

const WORKSPACE: &str = "Cargo.toml";
const PAGE: &str = "docs/design/dependencies.md";

/// What is wrong, as `file: what`.
pub(crate) fn findings(files: &Files) -> Vec<String> {
    let (Some(workspace), Some(page)) = (files.get(WORKSPACE), files.get(PAGE)) else {
        return vec![format!("{PAGE}: it and {WORKSPACE} have to be there")];
    };
    let members: Vec<(&String, &String)> =
        files.iter().filter(|(path, _)| path.as_str() != WORKSPACE && is_member(path)).collect();
    let declared: Vec<&str> = entries(workspace, is_list)
        .filter(|(_, rest)| !rest.contains("path ="))
        .map(|(name, _)| name)
        .collect();
    let rows: Vec<(&str, &str)> = page.lines().filter_map(row).collect();
    let mut found = Vec::new();
    for name in &declared {
        match rows.iter().find(|(of, _)| of == name) {
            None => found.push(format!("{PAGE}: no row says what `{name}` is for")),
            Some((_, reason)) if reason.len() < 15 => found.push(format!("{PAGE}: `{name}` has no reason")),
            Some(_) => {}
        }
        let uses = |text: &&String| entries(text, is_list).any(|(used, _)| used == *name);
        if !members.iter().any(|(_, text)| uses(text)) {
            found.push(format!("{WORKSPACE}: nothing uses `{name}`"));
        }
    }
    for (name, _) in rows.iter().filter(|(name, _)| !declared.contains(name)) {
        found.push(format!("{PAGE}: `{name}` is no dependency"));
    }
    if !workspace.contains("\nunsafe_code = \"forbid\"\n") {
        found.push(format!("{WORKSPACE}: the lints of the workspace do not forbid unsafe code"));
    }
    for (path, text) in members {
        if !text.contains("\n[lints]\nworkspace = true\n") {
            found.push(format!(
                "{path}: it does not inherit the lints of the workspace, which forbid unsafe code"
            ));
        }
        let own = |(_, rest): &(&str, &str)| !rest.contains("workspace") && !rest.contains("path =");
        for (name, _) in entries(text, is_list).filter(own) {
            found.push(format!("{path}: `{name}` is not one of the workspace's dependencies"));
        }
    }
    found
}

/// The manifest of a folder that the workspace lists. One that lies deeper is a program of its own, which is built elsewhere.
fn is_member(path: &str) -> bool {
    let folder: Vec<&str> = path.strip_suffix("/Cargo.toml").unwrap_or_default().split('/').collect();
    matches!(folder.as_slice(), ["xtask"] | ["crates" | "apps", _])
}

/// Whether a section lists dependencies.
fn is_list(section: &str) -> bool {
    section.ends_with("dependencies")
}

/// The entries of the sections that are wanted: the name, and what stands behind it.
fn entries(text: &str, wanted: fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    text.lines().filter_map(move |line| {
        if let Some(section) = line.strip_prefix('[') {
            inside = wanted(section.trim_end_matches(']'));
            return None;
        }
        let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')?;
        let (name, rest) = line.split_at(end);
        (inside && !name.is_empty() && rest.contains('=')).then_some((name, rest))
    })
}

/// A row of the page: the name, and the reason in the last cell.
fn row(line: &str) -> Option<(&str, &str)> {
    let rest = line.strip_prefix("| `")?;
    let (name, rest) = rest.split_once('`')?;
    let reason = rest.trim().trim_end_matches('|').rsplit('|').next()?;
    Some((name, reason.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "\n[lints]\nworkspace = true\n";

    fn with(page: &str, member: &str) -> Vec<String> {
        let workspace = "[workspace.dependencies]\nquell = { path = \"crates/quell\" }\n# why\nserde = \"1\"\n\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let files = [(WORKSPACE, workspace), (PAGE, page), ("crates/a/Cargo.toml", member)];
        findings(&files.map(|(path, text)| (path.to_owned(), text.to_owned())).into())
    }

    const ROW: &str = "| `serde` | data | reads and writes everything that is stored |\n";

    #[test]
    fn a_dependency_with_a_reason_and_a_user_is_fine() {
        let member =
            format!("{LINTS}\n[dependencies]\nserde.workspace = true\nquell = {{ workspace = true }}\n");
        assert_eq!(with(ROW, &member), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let member = format!("{LINTS}\n[dev-dependencies]\nserde.workspace = true\n");
        assert_eq!(with("", &member), [format!("{PAGE}: no row says what `serde` is for")]);
        assert_eq!(with("| `serde` | data | |\n", &member), [format!("{PAGE}: `serde` has no reason")]);
        let gone = format!("{ROW}| `chrono` | data | was here once, and is not any more |\n");
        assert_eq!(with(&gone, &member), [format!("{PAGE}: `chrono` is no dependency")]);
        assert_eq!(with(ROW, LINTS), [format!("{WORKSPACE}: nothing uses `serde`")]);
    }

    #[test]
    fn a_program_inside_a_member_is_not_one_of_the_workspace() {
        assert!(is_member("crates/quell-core/Cargo.toml") && is_member("xtask/Cargo.toml"));
        assert!(!is_member("crates/quell-bench-compare/peers/apalis/Cargo.toml"));
        assert!(!is_member("crates/quell-core/src/lib.rs"));
    }

    #[test]
    fn a_member_of_its_own_mind_is_named() {
        let member = "[dependencies]\nserde.workspace = true\nrand = \"1\"\n";
        let found = with(ROW, member);
        assert!(found[0].contains("does not inherit the lints"), "{found:?}");
        assert!(found[1].contains("`rand` is not one of the workspace's dependencies"), "{found:?}");
        assert_eq!(found.len(), 2);
    }
}
