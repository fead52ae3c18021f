//! Programs that a page shows are files that the tests run.
//!
//! A page marks such a block with a comment on the line before its fence, naming the file from the root of the repository:
//!
//! ```text
//! <!-- file: examples/first_handler/answer.sh -->
//! ```
//!
//! The block then has to be the whole file, letter by letter.

use crate::docs::Files;

const MARK: &str = "<!-- file: ";

/// What is wrong with the marked blocks of a page, each as `line: what`.
pub(crate) fn findings(files: &Files, page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines().zip(1..).peekable();
    while let Some((line, number)) = lines.next() {
        let Some(name) = line.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        let Some(wanted) = files.get(name) else {
            found.push((number, format!("shows `{name}`, which is no file of the repository")));
            continue;
        };
        if lines.next_if(|(line, _)| line.starts_with("```")).is_none() {
            found.push((number, format!("names `{name}`, and no block follows")));
            continue;
        }
        let shown: String = lines
            .by_ref()
            .map(|(line, _)| line)
            .take_while(|line| *line != "```")
            .flat_map(|line| [line, "\n"])
            .collect();
        if shown != *wanted {
            found.push((number, format!("shows another text than `{name}` has")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(page: &str) -> Vec<(usize, String)> {
        let files = Files::from([("a.sh".to_owned(), "one\n\ntwo\n".to_owned())]);
        findings(&files, page)
    }

    #[test]
    fn a_block_is_the_whole_file() {
        assert_eq!(judged("text\n<!-- file: a.sh -->\n```sh\none\n\ntwo\n```\nmore\n"), []);
        for other in ["one\ntwo\n", "one\n\ntwo\nthree\n", "one\n\n"] {
            let found = judged(&format!("text\n<!-- file: a.sh -->\n```sh\n{other}```\n"));
            assert_eq!(found, [(2, "shows another text than `a.sh` has".to_owned())], "{other}");
        }
    }

    #[test]
    fn a_mark_without_a_file_or_a_block_is_a_mistake() {
        assert_eq!(judged("<!-- file: b.sh -->\n```\n```\n").len(), 1);
        assert_eq!(judged("<!-- file: a.sh -->\n\n```\none\n\ntwo\n```\n").len(), 1);
        assert_eq!(judged("```\none\n```\n"), []);
    }
}
