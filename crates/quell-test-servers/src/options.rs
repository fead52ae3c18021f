//! What a test may choose about a server; everything has a default.

use std::path::PathBuf;

/// Where a server keeps its data, its password, and settings on top of ours.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub(crate) parent: Option<PathBuf>,
    pub(crate) password: Option<String>,
    pub(crate) settings: Vec<(String, String)>,
}

impl Options {
    /// The server's folder is made inside this one instead of the system's folder for temporary files. When the
    /// tests run as root, it must be open to everyone, because PostgreSQL and PgBouncer refuse to run as root.
    #[must_use]
    pub fn inside(mut self, parent: impl Into<PathBuf>) -> Self {
        self.parent = Some(parent.into());
        self
    }

    /// A password of the test's own; letters and digits, since it becomes part of a URL. Without it, PostgreSQL has
    /// a fixed one and Redis asks for none. PgBouncer takes over the one of its PostgreSQL.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// A setting by the name it has in the server's own configuration file; it wins over ours. The log has to stay
    /// at a level that reports the end of the start, because that is how the start is seen.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    pub(crate) fn parent(&self) -> PathBuf {
        self.parent.clone().unwrap_or_else(std::env::temp_dir)
    }
}
