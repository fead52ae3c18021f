//! What the tests of the stores rely on: a server answers, dies when it is told to, comes back with its data, and
//! leaves nothing behind.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use quell_test_servers::{Options, PgBouncer, Postgres, Redis};

/// The words that all servers share, so that a promise is written once.
trait Server {
    fn port(&self) -> u16;
    fn folder(&self) -> PathBuf;
    fn process_id(&self) -> Option<u32>;
    fn stop(&mut self);
    fn kill(&mut self);
    fn start_again(&mut self) -> std::io::Result<()>;
}

macro_rules! server {
    ($($name:ty),*) => { $(
        impl Server for $name {
            fn port(&self) -> u16 { self.port() }
            fn folder(&self) -> PathBuf { self.folder().to_path_buf() }
            fn process_id(&self) -> Option<u32> { self.process_id() }
            fn stop(&mut self) { self.stop().unwrap() }
            fn kill(&mut self) { self.kill().unwrap() }
            fn start_again(&mut self) -> std::io::Result<()> { self.start_again() }
        }
    )* };
}
server!(Postgres, Redis, PgBouncer);

#[test]
fn postgres_keeps_what_was_committed_when_it_is_killed() {
    let mut server = Postgres::start(Options::default()).unwrap();
    assert_eq!(psql(&server.url(), "show fsync").unwrap(), "on");
    assert_eq!(psql(&server.url(), "show synchronous_commit").unwrap(), "on");
    assert_eq!(psql(&server.url(), "show server_encoding").unwrap(), "UTF8");
    psql(&server.url(), "create table kept as select 42 as answer").unwrap();
    down_and_up(&mut server, |server| {
        assert_eq!(psql(&server.url(), "select answer from kept").unwrap(), "42");
    });
    leaves_nothing(server);
}

#[test]
fn a_killed_postgres_that_never_comes_back_leaves_no_shared_memory() {
    let mut server = Postgres::start(Options::default()).unwrap();
    let about = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    let segment = about.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().to_owned();
    let exists = || {
        let listed = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
        listed.lines().any(|line| line.split_whitespace().nth(1) == Some(segment.as_str()))
    };
    server.kill().unwrap();
    assert!(exists());
    drop(server);
    assert!(!exists());
}

#[test]
fn postgres_refuses_a_wrong_password_and_takes_the_tests_own() {
    let server = Postgres::start(Options::default().password("mine").setting("fsync", "off")).unwrap();
    assert_eq!(psql(&server.url(), "show fsync").unwrap(), "off");
    let error = psql(&server.url().replace(":mine@", ":yours@"), "select 1").unwrap_err();
    assert!(error.contains("password authentication failed"), "{error}");
}

#[test]
fn redis_keeps_what_was_answered_when_it_is_killed() {
    let mut server = Redis::start().unwrap();
    assert_eq!(redis(server.port(), &["PING"]), "+PONG");
    assert_eq!(redis(server.port(), &["CONFIG GET appendfsync"]), "*2 $11 appendfsync $6 always");
    assert_eq!(
        redis(server.port(), &["CONFIG GET maxmemory-policy"]),
        "*2 $16 maxmemory-policy $10 noeviction"
    );
    assert_eq!(redis(server.port(), &["SET kept 42"]), "+OK");
    down_and_up(&mut server, |server| assert_eq!(redis(server.port(), &["GET kept"]), "$2 42"));
    leaves_nothing(server);
}

#[test]
fn redis_asks_for_the_tests_own_password() {
    let options = Options::default().password("mine").setting("appendfsync", "everysec");
    let server = Redis::start_with(options).unwrap();
    assert!(server.url().starts_with("redis://:mine@127.0.0.1:"), "{}", server.url());
    assert!(redis(server.port(), &["PING"]).starts_with("-NOAUTH"));
    let answer = redis(server.port(), &["AUTH mine", "CONFIG GET appendfsync"]);
    assert_eq!(answer, "+OK *2 $11 appendfsync $8 everysec");
}

#[test]
fn pgbouncer_passes_on_to_its_postgres_also_after_both_were_killed() {
    let mut behind = Postgres::start(Options::default()).unwrap();
    // As shipped, a client waits two minutes for a server that is down.
    let options = Options::default().setting("query_wait_timeout", "1");
    let mut server = PgBouncer::start_with(&behind, options).unwrap();
    let through = |server: &PgBouncer| psql(&server.url(), "select inet_server_port()");
    assert_eq!(through(&server).unwrap(), behind.port().to_string());
    let error = psql(&server.url().replace(behind.password(), "wrong"), "select 1").unwrap_err();
    assert!(error.contains("authentication failed"), "{error}");
    down_and_up(&mut server, |server| assert_eq!(through(server).unwrap(), behind.port().to_string()));
    behind.kill().unwrap();
    assert!(through(&server).is_err());
    behind.start_again().unwrap();
    until("PgBouncer finds its PostgreSQL again", || through(&server).is_ok());
    leaves_nothing(server);
}

#[test]
fn a_server_whose_owner_is_killed_ends_with_it() {
    const OWNER: &str = "QUELL_TEST_OWNER";
    if std::env::var_os(OWNER).is_some() {
        let postgres = Postgres::start(Options::default()).unwrap();
        let servers = (PgBouncer::start(&postgres).unwrap(), Redis::start().unwrap());
        for (folder, pid) in [
            (postgres.folder(), postgres.process_id()),
            (servers.0.folder(), servers.0.process_id()),
            (servers.1.folder(), servers.1.process_id()),
        ] {
            println!("\nserver {} {}", pid.unwrap(), folder.display());
        }
        println!("\nserver end");
        loop {
            std::thread::park();
        }
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_whose_owner_is_killed_ends_with_it", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(owner.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said = said.filter_map(|line| line.strip_prefix("server ").map(str::to_owned));
    let servers: Vec<String> = said.take_while(|line| line != "end").collect();
    assert_eq!(servers.len(), 3, "{servers:?}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    for server in servers {
        let (pid, folder) = server.split_once(' ').unwrap();
        until(&format!("{folder} is deleted"), || !Path::new(folder).exists());
        assert!(!runs(pid.parse().unwrap()), "process {pid} of {folder} still runs");
    }
}

/// Through every way down and up again; `check` sees that the data are still there.
fn down_and_up<S: Server>(server: &mut S, check: impl Fn(&S)) {
    let port = server.port();
    let error = server.start_again().unwrap_err();
    assert!(error.to_string().contains("still running"), "{error}");

    let processes = standing_in(&server.folder());
    assert!(processes.contains(&server.process_id().unwrap()), "{processes:?}");
    server.kill();
    is_down(server, &processes);
    server.start_again().unwrap();
    check(server);

    let processes = standing_in(&server.folder());
    server.stop();
    is_down(server, &processes);
    // Somebody else has the port: said as such, and over when the port is free again.
    {
        let _other = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let error = server.start_again().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse, "{error}");
    }
    server.start_again().unwrap();
    assert_eq!(server.port(), port);
    check(server);
}

fn is_down<S: Server>(server: &mut S, processes: &[u32]) {
    assert_eq!(server.process_id(), None);
    for pid in processes {
        assert!(!runs(*pid), "process {pid} still runs");
    }
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err());
    server.stop();
    server.kill();
}

fn leaves_nothing<S: Server>(server: S) {
    let folder = server.folder();
    let processes = standing_in(&folder);
    assert!(folder.exists() && !processes.is_empty());
    drop(server);
    assert!(!folder.exists(), "{} is left", folder.display());
    for pid in processes {
        // The children of a PostgreSQL that ended at once may need a moment longer than itself.
        until(&format!("process {pid} is gone"), || !runs(pid));
    }
}

/// All processes whose current folder is this one or lies in it: the server and its children.
fn standing_in(folder: &Path) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stands =
        |path: PathBuf| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    processes
        .filter(|entry| stands(entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn runs(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains("Z (zombie)"))
}

fn psql(url: &str, statement: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["--no-psqlrc", "--no-align", "--tuples-only", "--no-password", url, "-c", statement])
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// Says some lines and returns all that is answered, in one line.
fn redis(port: u16, lines: &[&str]) -> String {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for line in lines.iter().chain(&["QUIT"]) {
        write!(connection, "{line}\r\n").unwrap();
    }
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let words: Vec<_> = answer.lines().collect();
    let (quit, words) = words.split_last().unwrap();
    assert_eq!(*quit, "+OK");
    words.join(" ")
}

#[expect(
    clippy::disallowed_methods,
    reason = "other processes keep real time; a test of them cannot move it"
)]
fn until(what: &str, mut come_true: impl FnMut() -> bool) {
    let since = std::time::Instant::now();
    while !come_true() {
        assert!(since.elapsed() < Duration::from_secs(30), "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
