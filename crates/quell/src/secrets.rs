//! Secrets from files and the environment, read when a program starts.
//!
//! They are found by name only ([`SecretSource`]); an error names the place and never repeats what stands there.

use std::collections::BTreeMap;
use std::io::Read;

use crate::config::SecretSource;

/// Larger files are no secrets; somebody has named the wrong one.
const SECRET_BYTES_MAX: u64 = 4 * 1024;

/// Why a secret cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the secret from {place} {problem}")]
pub struct SecretError {
    /// The file or the environment variable.
    pub place: String,
    /// Completes the sentence "the secret from … ".
    pub problem: String,
}

/// Reads a secret: the whole text but for the white space around it.
pub fn read(source: &SecretSource, env: &BTreeMap<String, String>) -> Result<String, SecretError> {
    let bad = |problem: String| SecretError { place: source.to_string(), problem };
    let text = match source {
        SecretSource::Env(name) => env.get(name).cloned().ok_or_else(|| bad("is not set".to_owned()))?,
        SecretSource::File(path) => {
            let cannot = |error: std::io::Error| bad(format!("cannot be read: {error}"));
            let file = std::fs::File::open(path).map_err(cannot)?;
            let mut text = String::new();
            file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text).map_err(cannot)?;
            if text.len() as u64 > SECRET_BYTES_MAX {
                return Err(bad(format!("has more than {SECRET_BYTES_MAX} bytes: is it the right file?")));
            }
            text
        }
    };
    match text.trim() {
        "" => Err(bad("is empty".to_owned())),
        text => Ok(text.to_owned()),
    }
}

/// Files of secrets that everybody on this machine can read, for a warning at the start of a program.
pub fn readable_by_all(source: &SecretSource) -> bool {
    #[cfg(unix)]
    if let SecretSource::File(path) = source {
        use std::os::unix::fs::PermissionsExt;
        return std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_text_without_the_space_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("push.secret");
        std::fs::write(&path, " open sesame\n").unwrap();
        let env = BTreeMap::from([("PUSH".to_owned(), "\topen sesame ".to_owned())]);
        for source in [SecretSource::File(path), SecretSource::Env("PUSH".into())] {
            assert_eq!(read(&source, &env).as_deref(), Ok("open sesame"));
        }
    }

    #[test]
    fn what_is_missing_empty_or_too_large_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| SecretSource::File(folder.path().join(name));
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        std::fs::write(folder.path().join("large"), "x".repeat(5_000)).unwrap();
        std::fs::write(folder.path().join("binary"), b"\xff\xfe").unwrap();
        let env = BTreeMap::from([("BLANK".to_owned(), " ".to_owned())]);
        for (source, problem) in [
            (path("missing"), "cannot be read"),
            (path("empty"), "is empty"),
            (path("large"), "more than 4096 bytes"),
            (path("binary"), "cannot be read"),
            (SecretSource::Env("NONE".into()), "is not set"),
            (SecretSource::Env("BLANK".into()), "is empty"),
        ] {
            let text = read(&source, &env).unwrap_err().to_string();
            assert!(text.contains(problem) && text.contains(&source.to_string()), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_everybody_can_read_is_noticed() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "open sesame").unwrap();
        for (mode, open) in [(0o600, false), (0o640, false), (0o644, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(readable_by_all(&SecretSource::File(path.clone())), open, "{mode:o}");
        }
        assert!(!readable_by_all(&SecretSource::Env("PATH".into())));
    }
}
