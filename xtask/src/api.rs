//! The part `api`: does the server keep to its own document?
//!
//! `quell serve` is started as a user would, and schemathesis reads its `/openapi.json` and sends what the document allows
//! and what it forbids, operation by operation. It is a Python program, installed at one pinned version below `target/tools`.
//! The run is the same every time (one seed) and short; more examples are one argument away: see `CONTRIBUTING.md`.
//!
//! Two operations wait by design and are left to the tests of the server: `claim` (a long poll) and `stream`. Whether data
//! that the document allows is accepted cannot be said here: most operations are about runs and lanes that do not exist. Wrong
//! tokens are left to the tests of the server, too: after ten of them the answer is 429, which this program does not expect.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use anyhow::Context as _;

use crate::report::Verdict;
use crate::{Place, process, servers};

const VERSION: &str = "4.32.5";
const CONFIG: &str = "\
[queues.chat]
window = { quiet = \"100ms\", max_wait = \"1s\" }
handler = \"pull\"
[queues.jobs]
window = \"none\"
handler = \"pull\"
[sources.shop]
rate_limit_per_minute = 60
";

pub(crate) fn check(place: &Place) -> anyhow::Result<Verdict> {
    servers::install_missing(place)?;
    let program = match installed(place)? {
        Ok(program) => program,
        Err(reason) => return Ok(Verdict::Failed(format!("cannot install schemathesis: {reason}"))),
    };
    // As the part `build` does it: another selection has other features, and would compile everything once more.
    let build = place.cargo(&["build", "--workspace", "--all-targets"]);
    if let Verdict::Failed(reason) = process::stream(build)? {
        return Ok(Verdict::Failed(reason));
    }
    let server = Server::start(place)?;
    let mut command = place.command(program);
    command
        .current_dir(&server.folder)
        .args(["run", &format!("http://{}/openapi.json", server.address)])
        .args(["--header", &format!("Authorization: Bearer {}", server.token)])
        .args(["--exclude-operation-id", "claim", "--exclude-operation-id", "stream"])
        .args([
            "--phases",
            "examples,coverage,fuzzing",
            "--exclude-checks",
            "positive_data_acceptance,ignored_auth",
        ])
        .args(["--max-examples", "10", "--seed", "1", "--workers", "1", "--request-timeout", "30"])
        .args(["--continue-on-failure", "--no-shrink", "--warnings", "off"]);
    process::stream(command)
}

/// The program, or why it cannot be had.
fn installed(place: &Place) -> anyhow::Result<Result<PathBuf, String>> {
    let folder = place.root.join("target/tools").join(format!("schemathesis-{VERSION}"));
    let program = folder.join("bin/schemathesis");
    if program.is_file() {
        return Ok(Ok(program));
    }
    println!("schemathesis {VERSION} is not here yet; installing it takes half a minute");
    let mut made = place.command("python3");
    made.args(["-m", "venv"]).arg(&folder);
    let mut filled = place.command(folder.join("bin/pip"));
    filled.args(["install", "--quiet", "--disable-pip-version-check", &format!("schemathesis=={VERSION}")]);
    for command in [made, filled] {
        if let Verdict::Failed(reason) = process::stream(command)? {
            return Ok(Err(reason));
        }
    }
    Ok(Ok(program))
}

/// A server on a free port with a store of its own; gone when it is dropped.
struct Server {
    child: Child,
    address: String,
    token: String,
    folder: PathBuf,
}

impl Server {
    fn start(place: &Place) -> anyhow::Result<Self> {
        let folder = place.root.join("target/tmp").join(format!("api-{}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make a folder below target")?;
        std::fs::write(folder.join("quell.toml"), CONFIG).context("cannot write the configuration")?;
        let quell = || {
            let mut command = place.command(place.root.join("target/debug/quell"));
            command.current_dir(&folder).env_clear();
            command
        };
        let mut make = quell();
        make.args(["token", "create", "api", "--scope", "admin"]).stderr(Stdio::null());
        let token = make.output().context("cannot make a token")?.stdout;
        let token = String::from_utf8_lossy(&token).trim().to_owned();
        anyhow::ensure!(!token.is_empty(), "`quell token create` printed no token");
        let mut serve = quell();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--log", "error"]).stderr(Stdio::piped());
        let mut child = serve.spawn().context("cannot start `quell serve`")?;
        let mut lines = BufReader::new(child.stderr.take().context("its stderr is a pipe")?).lines();
        let found = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let address = line.split_once("http://")?.1.split(' ').next()?;
            Some(address.to_owned())
        });
        let address = found.context("`quell serve` did not say where it listens")?;
        // Read on, or its next word would find nobody.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Ok(Server { child, address, token, folder })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
