//! Redis as a store needs it: every write is on disk before it is answered, and nothing is ever evicted.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::folder::Folder;
use crate::process::Send;
use crate::server::{Kind, Server};
use crate::user::User;
use crate::{Options, find};

/// The data are about to be deleted; nothing of it has to be written.
const END: Send = Send::Kill;

/// A Redis server of the test's own.
pub struct Redis {
    server: Server,
    password: Option<String>,
}

impl Redis {
    /// An empty server without a password.
    ///
    /// # Errors
    ///
    /// When Redis is not installed or does not start; the text says what to install, or the end of its log.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Options::default())
    }

    /// An empty server with a password or settings of the test's own.
    ///
    /// # Errors
    ///
    /// As for [`Redis::start`].
    pub fn start_with(options: Options) -> io::Result<Self> {
        let program = find::redis()?;
        let password = options.password.clone();
        let folder = Folder::fresh("redis", &options, User::Ourselves, END)?;
        let launch = move |folder: &Path, port: u16| {
            let mut command = Command::new(&program);
            command.arg("--port").arg(port.to_string()).arg("--dir").arg(folder);
            command.args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", ""]);
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
            command.args(["--maxmemory-policy", "noeviction"]);
            if let Some(password) = &options.password {
                command.args(["--requirepass", password]);
            }
            for (name, value) in &options.settings {
                command.arg(format!("--{name}")).arg(value);
            }
            Ok(command)
        };
        let kind = Kind {
            name: "Redis",
            ready: "ready to accept connections",
            stop: Send::Terminate,
            end: END,
            launch: Box::new(launch),
        };
        Ok(Self { server: Server::start(kind, folder)?, password })
    }

    /// Database 0, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        let login = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}/0", self.port())
    }

    #[must_use]
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }
}

crate::server::controls!(Redis);
