//! The part `docs`: can a stranger follow what we wrote?
//!
//! Every relative link in a Markdown file must lead to a file, folder or heading of the repository, and no file may
//! mention a path that exists on one machine only, or the notes that lie beside a checkout but are not part of it.
//! The files judged are those that git knows or would add, because a link to something ignored works only for its
//! author.
//!
//! `links.rs` reads the Markdown, `snippets.rs` compares programs that a page shows with their files, `dependencies.rs` looks at what is said of
//! dependencies; here the files are gathered and the findings worded.

use std::collections::BTreeMap;

use anyhow::Context as _;

use crate::report::Verdict;
use crate::{Place, dependencies, links, process, snippets};

/// The repository as text: path with `/` → content; files that are not UTF-8 are listed with no content.
pub(crate) type Files = BTreeMap<String, String>;

/// Texts that mean something on one machine only. They are written in two halves because this file is judged too.
const FOREIGN: [&str; 3] = [concat!("..", "/shared"), concat!("/wo", "rk/"), concat!("/ro", "ot/")];

/// Checks the whole repository and prints each finding as `file:line: what`.
pub(crate) fn check(place: &Place) -> anyhow::Result<Verdict> {
    let files = gather(place)?;
    let mut findings = judge(&files);
    findings.extend(dependencies::findings(&files));
    for finding in &findings {
        println!("{finding}");
    }
    let pages = files.keys().filter(|path| path.ends_with(".md")).count();
    println!("{} files read, {pages} of them Markdown", files.len());
    Ok(match findings.len() {
        0 => Verdict::Ok,
        1 => Verdict::Failed("1 finding".to_owned()),
        n => Verdict::Failed(format!("{n} findings")),
    })
}

fn gather(place: &Place) -> anyhow::Result<Files> {
    let mut command = place.command("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = process::capture(command)?;
    let mut files = Files::new();
    for path in listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        let path = String::from_utf8(path.to_vec()).context("a file name is not UTF-8")?;
        match std::fs::read(place.root.join(&path)) {
            Ok(bytes) => files.insert(path, String::from_utf8(bytes).unwrap_or_default()),
            // Deleted but not yet committed as such.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        };
    }
    Ok(files)
}

fn judge(files: &Files) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in files {
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(found) = FOREIGN.into_iter().find(|foreign| mentions(line, foreign)) {
                findings.push(format!("{path}:{number}: mentions `{found}`, which others do not have"));
            }
        }
        if path.ends_with(".md") {
            for (line, problem) in snippets::findings(files, text) {
                findings.push(format!("{path}:{line}: {problem}"));
            }
            for link in links::links(text) {
                if let Err(reason) = links::resolve(files, path, &link.target) {
                    findings.push(format!("{path}:{}: link `{}` {reason}", link.line, link.target));
                }
            }
        }
    }
    findings
}

/// Whether the line holds the text as the start of a path, and not as the middle of a longer one (`src/…`, `~/…`).
fn mentions(line: &str, foreign: &str) -> bool {
    line.match_indices(foreign).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        foreign.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || "._-~}*".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, String)]) -> Files {
        entries.iter().map(|(path, text)| ((*path).to_owned(), text.clone())).collect()
    }

    #[test]
    fn a_path_of_one_machine_is_found_in_any_file_with_its_line() {
        let [beside, work, root] = FOREIGN;
        for foreign in [beside, work, root] {
            for text in [format!("{foreign}x"), format!("cd {foreign}x"), format!("\"file://{foreign}x\"")] {
                let found = judge(&files(&[("src/a.rs", format!("// one\n{text}\n"))]));
                assert_eq!(found.len(), 1, "{text}");
                assert!(found[0].starts_with("src/a.rs:2: mentions"), "{}", found[0]);
            }
        }
    }

    #[test]
    fn the_same_letters_inside_a_longer_path_are_fine() {
        let [_, work, root] = FOREIGN;
        for text in
            [format!("src{work}x.rs"), format!("~{work}x"), format!("$HOME{root}x"), work.replace('/', "")]
        {
            assert_eq!(judge(&files(&[("a.txt", text)])), Vec::<String>::new());
        }
    }

    #[test]
    fn a_dead_link_is_reported_at_its_line_and_only_in_markdown() {
        let text = "# Page\n\nsee [there](there.md) and [here](here.md)\n".to_owned();
        let found = judge(&files(&[("here.md", text.clone()), ("here.rs", text)]));
        assert_eq!(found, ["here.md:3: link `there.md` leads to no file of the repository"]);
    }
}
