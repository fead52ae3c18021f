//! PgBouncer in transaction pooling mode, the least that a client of PostgreSQL can be given.
//!
//! Each transaction may run on another connection, and named prepared statements are not followed from one to the
//! next, as with poolers before 1.21. What works here works behind any pooler.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::folder::Folder;
use crate::postgres::USER;
use crate::process::Send;
use crate::server::{Kind, Server};
use crate::user::User;
use crate::{Options, Postgres, find};

/// A PgBouncer of the test's own, in front of one PostgreSQL.
pub struct PgBouncer {
    server: Server,
    password: String,
}

/// There are no data.
const END: Send = Send::Kill;
/// The first version that can follow prepared statements, and therefore the first that knows the setting.
const FOLLOWS_STATEMENTS: (u32, u32) = (1, 21);
/// The first version in which SIGTERM waits for clients.
const PATIENT: (u32, u32) = (1, 23);

impl PgBouncer {
    /// In front of this server; all its databases are reachable under their names.
    ///
    /// # Errors
    ///
    /// When PgBouncer is not installed or does not start; the text says what to install, or the end of its log.
    pub fn start(postgres: &Postgres) -> io::Result<Self> {
        Self::start_with(postgres, Options::default())
    }

    /// The same with settings of the test's own.
    ///
    /// # Errors
    ///
    /// As for [`PgBouncer::start`].
    pub fn start_with(postgres: &Postgres, options: Options) -> io::Result<Self> {
        let program = find::pgbouncer()?;
        let version = version(&program)?;
        let user = User::unprivileged()?;
        let password = postgres.password().to_owned();
        let folder = Folder::fresh("pgbouncer", &options, user, END)?;
        let users = folder.path().join("users.txt");
        std::fs::write(&users, format!("\"{USER}\" \"{password}\"\n"))?;
        user.own(&users)?;
        let behind = postgres.port();
        let launch = move |folder: &Path, port: u16| {
            let file = folder.join("pgbouncer.ini");
            std::fs::write(&file, settings(&users, behind, port, version, &options))?;
            user.own(&file)?;
            let mut command = user.command(&program);
            command.arg(file);
            Ok(command)
        };
        let kind = Kind {
            name: "PgBouncer",
            ready: "process up",
            stop: if version < PATIENT { Send::Terminate } else { Send::Quit },
            end: END,
            launch: Box::new(launch),
        };
        Ok(Self { server: Server::start(kind, folder)?, password })
    }

    /// The database `postgres` of the server behind it, as superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Another database of the server behind it.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password, self.port())
    }
}

crate::server::controls!(PgBouncer);

/// The configuration file; of two lines with the same name, the later one wins.
fn settings(users: &Path, behind: u16, port: u16, version: (u32, u32), options: &Options) -> String {
    let mut text = format!(
        "[databases]\n\
         * = host=127.0.0.1 port={behind}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = scram-sha-256\n\
         auth_file = {}\n\
         pool_mode = transaction\n\
         max_client_conn = 500\n\
         default_pool_size = 20\n\
         server_login_retry = 1\n",
        users.display()
    );
    if version >= FOLLOWS_STATEMENTS {
        text.push_str("max_prepared_statements = 0\n");
    }
    for (name, value) in &options.settings {
        text.push_str(&format!("{name} = {value}\n"));
    }
    text
}

fn version(program: &Path) -> io::Result<(u32, u32)> {
    let said = Command::new(program).arg("--version").output()?.stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    read_version(&said).ok_or_else(|| io::Error::other(format!("PgBouncer tells no version: {said}")))
}

fn read_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.lines().next()?.strip_prefix("PgBouncer ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(read_version("PgBouncer 1.18.0\nlibevent 2.1.12-stable\n"), Some((1, 18)));
        assert_eq!(read_version("PgBouncer 1.9.0\n"), Some((1, 9)));
        assert!(read_version("PgBouncer 1.9.0") < Some(FOLLOWS_STATEMENTS));
        assert_eq!(read_version("something else"), None);
    }

    #[test]
    fn a_setting_is_left_out_where_it_is_unknown_and_the_tests_own_comes_last() {
        let options = Options::default().setting("pool_mode", "session");
        let old = settings(Path::new("users"), 1, 2, (1, 18), &options);
        assert!(!old.contains("max_prepared_statements"));
        assert!(old.ends_with("pool_mode = session\n"));
        assert!(
            settings(Path::new("users"), 1, 2, (1, 21), &options).contains("max_prepared_statements = 0")
        );
    }
}
