//! Where secrets are found: names of files and of environment variables. The secrets themselves are never settings: they are
//! read when they are needed (`secrets.rs`), and nothing that shows settings can show them.

use std::path::PathBuf;

use super::error::ConfigError;
use super::resolver::Resolver;
use super::value::{OneOrMany, Written};

/// Where one secret is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file with nothing else in it; relative to the working folder, as all paths of a configuration.
    File(PathBuf),
    /// An environment variable.
    Env(String),
}

impl std::fmt::Display for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SecretSource::File(path) => write!(f, "file {}", path.display()),
            SecretSource::Env(name) => write!(f, "environment {name}"),
        }
    }
}

/// `secret_file` and `secret_env`, each one name or a list.
pub(super) fn resolve_secrets(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    files: Option<Written<OneOrMany>>,
    names: Option<Written<OneOrMany>>,
) -> Result<Vec<SecretSource>, ConfigError> {
    resolve_secrets_of(r, path, "secret", files, names)
}

/// The same of settings with another name, such as `verify_token_file` and `verify_token_env`.
pub(super) fn resolve_secrets_of(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    setting: &str,
    files: Option<Written<OneOrMany>>,
    names: Option<Written<OneOrMany>>,
) -> Result<Vec<SecretSource>, ConfigError> {
    let mut sources = Vec::new();
    if let Some(written) = files {
        let found = r.placed(written);
        if found.value.0.is_empty() || found.value.0.iter().any(|file| file.trim().is_empty()) {
            return Err(r.error(&found, "a name of a file is missing"));
        }
        r.note(path(&format!("{setting}_file")), found.value.to_string(), &found.origin);
        sources.extend(found.value.0.iter().map(|file| SecretSource::File(PathBuf::from(file))));
    }
    if let Some(written) = names {
        let found = r.placed(written);
        let odd = |name: &&String| name.is_empty() || name.contains(['=', '\0', ' ']);
        if let Some(name) = found.value.0.iter().find(odd) {
            let help = "write the name of the variable; the secret itself does not belong into this file";
            return Err(r.error(&found, format!("{name:?} is not a variable name")).help(help));
        }
        if found.value.0.is_empty() {
            return Err(r.error(&found, "a name of a variable is missing"));
        }
        r.note(path(&format!("{setting}_env")), found.value.to_string(), &found.origin);
        sources.extend(found.value.0.iter().map(|name| SecretSource::Env(name.clone())));
    }
    Ok(sources)
}

/// One secret from a file or the environment.
pub(super) fn resolve_secret(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    (file_name, file): (&str, Option<Written<String>>),
    (env_name, env): (&str, Option<Written<String>>),
) -> Result<Option<SecretSource>, ConfigError> {
    match (file.map(|w| r.placed(w)), env.map(|w| r.placed(w))) {
        (Some(_), Some(found)) => Err(r
            .error(&found, format!("{file_name} and {env_name} are both given"))
            .help("remove one of them")),
        (Some(found), None) => {
            r.note(path(file_name), &found.value, &found.origin);
            Ok(Some(SecretSource::File(PathBuf::from(found.value))))
        }
        (None, Some(found)) => {
            if found.value.is_empty() || found.value.contains(['=', '\0', ' ']) {
                let help = "write the name of the variable; the secret itself does not belong into this file";
                return Err(r.error(&found, format!("{:?} is not a variable name", found.value)).help(help));
            }
            r.note(path(env_name), &found.value, &found.origin);
            Ok(Some(SecretSource::Env(found.value)))
        }
        (None, None) => Ok(None),
    }
}
