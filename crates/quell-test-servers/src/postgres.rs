//! PostgreSQL with one superuser, a password that is really checked, and the durability settings it ships with.

use std::io;
use std::path::Path;
use std::process::Stdio;

use crate::folder::Folder;
use crate::process::{Pid, Send};
use crate::server::{Kind, Server};
use crate::user::User;
use crate::{Options, find};

/// The superuser of every server we start.
pub(crate) const USER: &str = "quell";
const PASSWORD: &str = "quelltest";
/// The immediate shutdown: without a checkpoint, but the server gives back its shared memory.
const END: Send = Send::Quit;

/// A PostgreSQL server of the test's own.
pub struct Postgres {
    server: Server,
    password: String,
}

impl Postgres {
    /// Makes a new cluster and starts it; two seconds, most of them for the cluster.
    ///
    /// # Errors
    ///
    /// When PostgreSQL is not installed or does not start; the text says what to install, or the end of its log.
    pub fn start(options: Options) -> io::Result<Self> {
        let program = find::postgres("postgres")?;
        let user = User::unprivileged()?;
        let password = options.password.clone().unwrap_or_else(|| PASSWORD.to_owned());
        let mut folder = Folder::fresh("pg", &options, user, END)?;
        make_cluster(&mut folder, user, &password)?;
        let launch = move |folder: &Path, port: u16| {
            let mut command = user.command(&program);
            command.arg("-D").arg(folder.join("data")).arg("-p").arg(port.to_string());
            let ours = [
                ("listen_addresses", "127.0.0.1"),
                // Their paths would have to be short, and nobody uses them.
                ("unix_socket_directories", ""),
                ("max_connections", "200"),
                ("log_min_messages", "warning"),
                // In the data folder, so that a killed server leaves nothing elsewhere.
                ("dynamic_shared_memory_type", "mmap"),
            ];
            let theirs = options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            for (name, value) in ours.into_iter().chain(theirs) {
                command.arg("-c").arg(format!("{name}={value}"));
            }
            Ok(command)
        };
        let kind = Kind {
            name: "PostgreSQL",
            ready: "database system is ready to accept connections",
            // The fast shutdown: clients are cut off, a checkpoint is written.
            stop: Send::Interrupt,
            end: END,
            launch: Box::new(launch),
        };
        Ok(Self { server: Server::start(kind, folder)?, password })
    }

    /// The database `postgres`, as superuser.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Another database of the same server, which need not exist yet.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}", self.password, self.port())
    }

    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }
}

crate::server::controls!(Postgres);

fn make_cluster(folder: &mut Folder, user: User, password: &str) -> io::Result<()> {
    let secret = folder.path().join("password");
    std::fs::write(&secret, format!("{password}\n"))?;
    user.own(&secret)?;
    let mut command = user.command(find::postgres("initdb")?);
    command.arg("-D").arg(folder.path().join("data")).arg("--pwfile").arg(&secret);
    command.args(["--username", USER, "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    command.current_dir(folder.path()).env("LC_ALL", "C").stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    folder.watch(Pid::from_child(&child))?;
    let output = child.wait_with_output()?;
    if output.status.success() {
        return std::fs::remove_file(secret);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("initdb cannot make a cluster ({}):\n{text}", output.status)))
}

impl Drop for Postgres {
    /// A killed server keeps a few bytes of System V shared memory, which the next start would have given back. There
    /// is no next start, and a system has room for some thousand of them only.
    fn drop(&mut self) {
        let Ok(about) = std::fs::read_to_string(self.folder().join("data/postmaster.pid")) else { return };
        let segment = about.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let (None, Some(segment)) = (self.process_id(), segment) {
            let mut command = std::process::Command::new("ipcrm");
            let _ = command.args(["-m", segment]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}
