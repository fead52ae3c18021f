//! Reads the links of a Markdown page and says whether they lead anywhere.
//!
//! This is not a Markdown parser. It knows inline links `[text](target)`, images, and definitions `[name]: target`,
//! skips code (between fences or in backticks), and makes the anchors of headings the way code forges do. That covers
//! how our pages are written; anything stranger is better written more simply. Addresses with a scheme are not
//! fetched: the outside world must not decide whether a change is good.

use std::collections::BTreeMap;

use crate::docs::Files;

/// A link as written, and the line it starts on (from 1).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) line: usize,
    pub(crate) target: String,
}

/// All links of a page, in order, whatever they point at.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, prose) in prose(text) {
        let prose = without_code(prose);
        if let Some(target) = definition(&prose) {
            found.push(Link { line, target: target.to_owned() });
            continue;
        }
        for (at, _) in prose.match_indices("](") {
            if let Some(target) = inline_target(&prose[at + 2..]) {
                found.push(Link { line, target: target.to_owned() });
            }
        }
    }
    found
}

/// Whether a link written in the page `from` leads to something of the repository; the error completes the sentence
/// "link … ".
pub(crate) fn resolve(files: &Files, from: &str, target: &str) -> Result<(), &'static str> {
    if has_scheme(target) || target.starts_with("//") {
        return Ok(());
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let path = if path.is_empty() { from.to_owned() } else { join(from, &path.replace("%20", " "))? };
    let Some(text) = files.get(&path) else {
        let folder = if path.is_empty() { String::new() } else { format!("{path}/") };
        let is_folder = files.keys().any(|file| file.starts_with(&folder));
        return if is_folder { Ok(()) } else { Err("leads to no file of the repository") };
    };
    match anchor {
        Some(anchor) if path.ends_with(".md") && !anchors(text).contains(&anchor.to_lowercase()) => {
            Err("leads to no heading of that page")
        }
        _ => Ok(()),
    }
}

/// The lines outside fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<&str> = None;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let line = line.trim_start();
        let opens = ["```", "~~~"].into_iter().find(|mark| line.starts_with(mark));
        match (fence, opens) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return true,
            _ => {}
        }
        false
    })
}

/// Blanks out what stands between backticks, keeping positions; a backtick without a partner is text.
fn without_code(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].chars().take_while(|c| *c == '`').count();
        let (mark, body) = rest[start..].split_at(ticks);
        let Some(end) = body.find(mark) else { break };
        kept.push_str(&rest[..start]);
        kept.push_str(&" ".repeat(end + 2 * ticks));
        rest = &body[end + ticks..];
    }
    kept + rest
}

fn definition(line: &str) -> Option<&str> {
    let (name, target) = line.trim_start().strip_prefix('[')?.split_once("]:")?;
    let is_footnote = name.starts_with('^');
    if is_footnote || name.contains([']', '[']) {
        None
    } else {
        target.split_whitespace().next().map(unwrapped)
    }
}

/// The target at the start of what follows `](`: up to the bracket that closes it, without a title.
fn inline_target(rest: &str) -> Option<&str> {
    let mut depth = 0;
    let end = rest.char_indices().find_map(|(at, c)| match c {
        '(' => {
            depth += 1;
            None
        }
        ')' if depth == 0 => Some(at),
        ')' => {
            depth -= 1;
            None
        }
        _ => None,
    })?;
    rest[..end].split_whitespace().next().map(unwrapped)
}

fn unwrapped(target: &str) -> &str {
    target.strip_prefix('<').and_then(|inner| inner.strip_suffix('>')).unwrap_or(target)
}

fn has_scheme(target: &str) -> bool {
    target.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    })
}

/// The path of a target relative to the root, with `.` and `..` worked out.
fn join(from: &str, target: &str) -> Result<String, &'static str> {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (start, target) = match target.strip_prefix('/') {
        Some(from_root) => ("", from_root),
        None => (folder, target),
    };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or("leaves the repository")?;
            }
            name => parts.push(name),
        }
    }
    Ok(parts.join("/"))
}

/// The anchors of all headings: lower case, spaces as `-`, other punctuation dropped, repeated ones numbered.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then_some(title.trim())
    });
    headings
        .map(|title| {
            let slug: String = title
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let times = seen.entry(slug.clone()).or_default();
            *times += 1;
            if *times == 1 { slug } else { format!("{slug}-{}", *times - 1) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        links(text).into_iter().map(|link| link.target).collect()
    }

    #[test]
    fn inline_links_images_and_definitions_are_found() {
        let text = "a [b](c.md) ![d](e.png \"title\") [f](<g.md>) [h](i(1).md)\n[name]: j.md\n";
        assert_eq!(targets(text), ["c.md", "e.png", "g.md", "i(1).md", "j.md"]);
        assert_eq!(links(text).last(), Some(&Link { line: 2, target: "j.md".to_owned() }));
    }

    #[test]
    fn code_holds_no_links() {
        let text = "`[a](b.md)` ``x ` [c](d.md)`` [e](f.md)\n```\n[g](h.md)\n~~~\n```\n[i](j.md) a ` b\n";
        assert_eq!(targets(text), ["f.md", "j.md"]);
    }

    #[test]
    fn a_target_is_taken_from_the_folder_of_its_page() {
        let files: Files = ["README.md", "docs/a.md", "docs/guide/b.md", "docs/guide/with space.md"]
            .map(|path| (path.to_owned(), "# Two words!\n# Two words\n".to_owned()))
            .into();
        let from = "docs/guide/b.md";
        for good in [
            "../a.md",
            "./b.md",
            "../../README.md#two-words",
            "#two-words-1",
            "..",
            "../..",
            "/docs/a.md",
            "with%20space.md",
            "https://example.org/none",
            "mailto:someone@example.org",
        ] {
            assert_eq!(resolve(&files, from, good), Ok(()), "{good}");
        }
        for (bad, reason) in [
            ("a.md", "leads to no file of the repository"),
            ("../guid", "leads to no file of the repository"),
            ("../../../README.md", "leaves the repository"),
            ("../a.md#three-words", "leads to no heading of that page"),
        ] {
            assert_eq!(resolve(&files, from, bad), Err(reason), "{bad}");
        }
    }
}
