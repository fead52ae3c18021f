//! Which store, and why: the choice between flag, environment, file and default.
//!
//! `--store` > `QUELL_STORE` > `quell.toml` > `DATABASE_URL` or `REDIS_URL` (both: refused) > `./quell.db`. Quell never
//! falls back to another store than the one chosen here. A URL is only classified, not opened; a password in it is
//! shown nowhere. Several URLs with commas between them are several databases of one store.

use std::fmt;
use std::path::PathBuf;

use super::Origin;

/// The store in force and where that was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreChoice {
    /// Which store.
    pub url: StoreUrl,
    /// Who chose it.
    pub origin: Origin,
}

/// A checked store URL. `Debug` and `Display` hide the password; [`StoreUrl::expose`] does not.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    kind: StoreKind,
}

/// Which kind of store a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    /// The path of the database file.
    Sqlite(PathBuf),
    /// `postgres://…`
    Postgres,
    /// `redis://…` or `rediss://…`
    Redis,
    /// Several databases that are one store.
    Several(Vec<StoreUrl>),
}

/// What a URL begins with; a comma before one of these begins another URL.
const SCHEMES: [&str; 5] = ["sqlite:", "postgres://", "postgresql://", "redis://", "rediss://"];

impl StoreUrl {
    /// Accepts `sqlite:PATH`, a bare path, `postgres://…` and `redis://…`, and several of them with commas between them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let parts = parted(text);
        if parts.len() > 1 {
            let urls = parts.into_iter().map(StoreUrl::parse).collect::<Result<Vec<_>, _>>()?;
            if let Some(twice) =
                urls.iter().enumerate().find_map(|(n, url)| urls[..n].contains(url).then_some(url))
            {
                return Err(format!("{twice} is named twice in the list of databases"));
            }
            return Ok(StoreUrl { text: text.to_owned(), kind: StoreKind::Several(urls) });
        }
        let forms = "write \"sqlite:PATH\", \"postgres://…\" or \"redis://…\"";
        let lower = text.to_ascii_lowercase();
        let has = |scheme: &str| lower.starts_with(scheme);
        let kind = if has("postgres://") || has("postgresql://") {
            StoreKind::Postgres
        } else if has("redis://") || has("rediss://") {
            StoreKind::Redis
        } else if has("sqlite:") {
            let path = &text["sqlite:".len()..];
            StoreKind::Sqlite(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))
        } else {
            match text.split_once(':') {
                // One letter before a colon is a drive of Windows, and a slash before it makes it part of a file name.
                Some((scheme, _)) if scheme.len() > 1 && !scheme.contains(['/', '\\', '.']) => {
                    return Err(format!("{scheme:?} is not a kind of store; {forms}"));
                }
                _ => StoreKind::Sqlite(PathBuf::from(text)),
            }
        };
        match &kind {
            StoreKind::Sqlite(path) if path.as_os_str().is_empty() => {
                Err(format!("the path of the SQLite file is missing; {forms}"))
            }
            StoreKind::Sqlite(_) if text.contains(['?', '\0']) => {
                Err("a SQLite path cannot have options after a '?'".to_owned())
            }
            StoreKind::Postgres | StoreKind::Redis if text.split("://").nth(1).is_none_or(str::is_empty) => {
                Err(format!("the host is missing; {forms}"))
            }
            _ => Ok(StoreUrl { text: text.to_owned(), kind }),
        }
    }

    /// Which kind of store it names.
    pub fn kind(&self) -> &StoreKind {
        &self.kind
    }

    /// The URL with its password, for the one place that connects.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreKind::Several(urls) = &self.kind else { return f.write_str(&redact(&self.text)) };
        let urls: Vec<String> = urls.iter().map(StoreUrl::to_string).collect();
        f.write_str(&urls.join(","))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

/// The URLs of a list. A comma within a path or a password is none between two URLs: no scheme follows it.
fn parted(text: &str) -> Vec<&str> {
    let lower = text.to_ascii_lowercase();
    let begins = |comma: usize| {
        let rest = lower[comma + 1..].trim_start();
        SCHEMES.iter().any(|scheme| rest.starts_with(scheme))
    };
    let (mut parts, mut from) = (Vec::new(), 0);
    for (comma, _) in text.match_indices(',').filter(|(comma, _)| begins(*comma)) {
        parts.push(text[from..comma].trim());
        from = comma + 1;
    }
    parts.push(text[from..].trim());
    parts
}

/// Replaces what stands between `user:` and `@` of every URL in a text, and the value of a `password=` option.
pub(super) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("://") {
        let (before, after) = rest.split_at(start + 3);
        shown.push_str(before);
        // A password may itself contain '@' or '/', so everything up to the last '@' of the word is taken for it.
        let word = after.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'')).unwrap_or(after.len());
        match (after[..word].rfind('@'), after[..word].find(':')) {
            (Some(at), Some(colon)) if colon < at => {
                shown.push_str(&after[..=colon]);
                shown.push_str("***");
                rest = &after[at..];
            }
            _ => rest = after,
        }
    }
    shown.push_str(rest);
    match shown.find("password=") {
        Some(start) => {
            let from = start + "password=".len();
            let end = shown[from..].find(|c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\''));
            let end = end.map_or(shown.len(), |i| from + i);
            shown.replace_range(from..end, "***");
            shown
        }
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_urls_are_told_apart() {
        let kind = |text| StoreUrl::parse(text).map(|u| u.kind);
        let sqlite = |path: &str| Ok(StoreKind::Sqlite(PathBuf::from(path)));
        assert_eq!(kind("sqlite:quell.db"), sqlite("quell.db"));
        assert_eq!(kind("sqlite:///var/q.db"), sqlite("/var/q.db"));
        assert_eq!(kind("./quell.db"), sqlite("./quell.db"));
        assert_eq!(kind("/var/a:b.db"), sqlite("/var/a:b.db"));
        assert_eq!(kind("PostgreSQL://h/db"), Ok(StoreKind::Postgres));
        assert_eq!(kind("rediss://h"), Ok(StoreKind::Redis));
    }

    #[test]
    fn a_list_of_databases_is_told_from_a_comma_in_a_name() {
        let url =
            StoreUrl::parse("postgres://u:a,b@x/q, sqlite:one,two.db,PostgreSQL://u:c@y/q?schema=s").unwrap();
        let StoreKind::Several(urls) = url.kind() else { panic!("{url:?} is a list") };
        let exposed: Vec<&str> = urls.iter().map(StoreUrl::expose).collect();
        assert_eq!(exposed, ["postgres://u:a,b@x/q", "sqlite:one,two.db", "PostgreSQL://u:c@y/q?schema=s"]);
        let shown = "postgres://u:***@x/q,sqlite:one,two.db,PostgreSQL://u:***@y/q?schema=s";
        assert_eq!((url.to_string(), format!("{url:?}")), (shown.to_owned(), format!("{shown:?}")));
        assert!(matches!(StoreUrl::parse("sqlite:a,b.db").unwrap().kind(), StoreKind::Sqlite(_)));
        let problem = StoreUrl::parse("sqlite:a.db,sqlite:a.db").unwrap_err();
        assert_eq!(problem, "sqlite:a.db is named twice in the list of databases");
        assert!(StoreUrl::parse("sqlite:a.db,postgres://").is_err());
    }

    #[test]
    fn a_malformed_store_url_is_refused_with_the_forms() {
        for bad in ["", "sqlite:", "postgres://", "mysql://h/db", "memory:", "sqlite:a.db?mode=ro"] {
            assert!(StoreUrl::parse(bad).is_err(), "{bad:?}");
        }
        let problem = StoreUrl::parse("postgress://h").unwrap_err();
        assert!(problem.contains("\"postgress\" is not a kind of store; write \"sqlite:PATH\""), "{problem}");
    }

    #[test]
    fn passwords_are_hidden_wherever_a_url_is_shown() {
        let url = StoreUrl::parse("postgres://me:p@ss/w:rd@db:5432/x").unwrap();
        assert_eq!(url.to_string(), "postgres://me:***@db:5432/x");
        assert_eq!(format!("{url:?}"), "\"postgres://me:***@db:5432/x\"");
        assert_eq!(url.expose(), "postgres://me:p@ss/w:rd@db:5432/x");
        assert_eq!(redact("redis://:secret@h and redis://h:1"), "redis://:***@h and redis://h:1");
        assert_eq!(redact("postgres://h/x?user=a&password=b&c=d"), "postgres://h/x?user=a&password=***&c=d");
        assert_eq!(redact("mail a:b@c, no url"), "mail a:b@c, no url");
    }
}
