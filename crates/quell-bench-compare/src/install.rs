//! Gets the peers from their registries into one folder, at the versions of `peers/`.
//!
//! npm gets its lock file, pip its pinned requirements, cargo its lock file with a build outside of the workspace, and Debian's package of
//! beanstalkd is unpacked without being installed. What works once is kept in the folder for the next run. What does not work is a
//! reason, which every row of that peer shows; the others are compared all the same.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Command;

use crate::answer::reason;
use crate::limits;
use crate::systems::{Driver, System};

/// The programs that run the drivers; an error is the reason why there is none.
#[derive(Debug, Clone)]
pub struct Installed {
    pub node: Result<PathBuf, String>,
    pub python: Result<PathBuf, String>,
    pub apalis: Result<PathBuf, String>,
    pub beanstalkd: Result<PathBuf, String>,
    folder: PathBuf,
}

impl Installed {
    /// Installs what the chosen systems need, and nothing else.
    ///
    /// # Errors
    ///
    /// When the folder cannot be written. A peer that cannot be installed is no error.
    pub async fn for_systems(systems: &[&System], folder: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let needs = |wanted: fn(&Driver) -> bool| systems.iter().any(|system| wanted(&system.driver));
        let unwanted = || Err("not chosen".to_owned());
        let told = |what: &str, result: anyhow::Result<PathBuf>| {
            result.map_err(|error| {
                let text = format!("{error:#}");
                println!("{what}: {text}");
                text
            })
        };
        let mut installed = Installed {
            node: unwanted(),
            python: unwanted(),
            apalis: unwanted(),
            beanstalkd: unwanted(),
            folder: folder.to_path_buf(),
        };
        if needs(|driver| matches!(driver, Driver::Node(_))) {
            installed.node = told("npm", node(&folder.join("node")).await);
        }
        if needs(|driver| matches!(driver, Driver::Python(_))) {
            installed.python = told("pip", python(&folder.join("python")).await);
        }
        if needs(|driver| matches!(driver, Driver::Beanstalkd { .. })) {
            installed.beanstalkd = told("beanstalkd", beanstalkd(&folder.join("beanstalkd")).await);
        }
        if needs(|driver| matches!(driver, Driver::Apalis)) {
            installed.apalis = told("apalis", apalis(&folder.join("apalis")).await);
        }
        Ok(installed)
    }

    /// The command of a driver without its last three arguments, or why there is none.
    pub fn command(&self, driver: Driver) -> Result<Command, String> {
        let with = |program: &Result<PathBuf, String>, arguments: &[&Path]| {
            let mut command = Command::new(program.as_ref().map_err(Clone::clone)?);
            command.args(arguments);
            Ok(command)
        };
        match driver {
            Driver::Quell => with(&ourselves(), &[Path::new("quell")]),
            Driver::Node(file) => with(&self.node, &[&self.folder.join("node").join(file)]),
            Driver::Python(file) => with(&self.python, &[&self.folder.join("python").join(file)]),
            Driver::Apalis => with(&self.apalis, &[]),
            Driver::Beanstalkd { flush_ms } => {
                let server = self.beanstalkd.as_ref().map_err(Clone::clone)?;
                with(&ourselves(), &[Path::new("beanstalkd"), server, Path::new(&flush_ms.to_string())])
            }
        }
    }
}

fn ourselves() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("this program does not know where it is: {error}"))
}

/// The drivers as they are in the repository; what was installed beside them stays.
fn copy_peers(name: &str, to: &Path) -> anyhow::Result<()> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name);
    copy(&from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if std::fs::read(entry.path())? != std::fs::read(&target).unwrap_or_default() {
            // Only what has changed: cargo and npm look at the times of files.
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Also Node itself, since the one of the system is older than what some peers ask for. Scripts of packages are not run: some of
/// them only report that they were installed.
async fn node(folder: &Path) -> anyhow::Result<PathBuf> {
    copy_peers("node", folder)?;
    let mut install = Command::new("npm");
    install.current_dir(folder);
    install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    done(install, "npm install").await?;
    let program = folder.join("node_modules/.bin/node");
    anyhow::ensure!(program.exists(), "npm installed no Node for this machine");
    Ok(program)
}

async fn python(folder: &Path) -> anyhow::Result<PathBuf> {
    copy_peers("python", folder)?;
    let environment = folder.join("venv");
    if !environment.join("bin/pip").exists() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&environment);
        done(make, "python3 -m venv").await?;
    }
    let mut install = Command::new(environment.join("bin/pip"));
    install.current_dir(folder);
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement", "requirements.txt"]);
    done(install, "pip install").await?;
    Ok(environment.join("bin/python"))
}

/// Outside of the workspace, whose compiler and settings it would otherwise take part in.
async fn apalis(folder: &Path) -> anyhow::Result<PathBuf> {
    copy_peers("apalis", folder)?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .current_dir(folder)
        .args(["build", "--release", "--locked", "--target-dir"])
        .arg(folder.join("target"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // The last is what the workspace tells its own SQLite: others are built as they come.
        let ours = ["CARGO_PKG_", "CARGO_MANIFEST_", "LIBSQLITE3_FLAGS"];
        if ours.iter().any(|start| text.starts_with(start)) {
            build.env_remove(name);
        }
    }
    println!("building apalis, which takes minutes the first time");
    done(build, "cargo build").await?;
    Ok(folder.join("target/release/quell-peer-apalis"))
}

/// The server of the system if there is one, otherwise Debian's package, unpacked.
async fn beanstalkd(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin".into(), "/usr/sbin".into()]);
    let unpacked = folder.join("usr/bin");
    let program =
        places.chain([unpacked.clone()]).map(|place| place.join("beanstalkd")).find(|file| file.is_file());
    if let Some(program) = program {
        return Ok(program);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut unpack = Command::new("sh");
    unpack.current_dir(folder);
    unpack.args(["-c", "apt-get download beanstalkd && dpkg-deb --extract beanstalkd_*.deb ."]);
    done(unpack, "apt-get download").await?;
    let program = unpacked.join("beanstalkd");
    anyhow::ensure!(program.is_file(), "the package has no program beanstalkd");
    Ok(program)
}

async fn done(mut command: Command, what: &str) -> anyhow::Result<()> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(limits::INSTALL, command.output())
        .await
        .with_context(|| format!("{what} did not end in {} s", limits::INSTALL.as_secs()))?
        .with_context(|| format!("cannot start {what}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{what}: {} ({})", reason(&said), output.status);
    Ok(())
}
