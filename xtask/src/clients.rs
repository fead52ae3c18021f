//! The part `clients`: do the clients for Python and Node work as they are installed, against a real server?
//!
//! Both are installed by the line that their README names (`pip install ./clients/python`, `npm install ./clients/typescript`), the
//! one for Node also as the archive that would be published; their own suites then run against what was installed, each starting
//! the `quell serve` that it needs. Before that the types are checked: mypy for the one; for the other the compiler, whose output
//! is committed as `clients/typescript/dist` and has to be what the source makes of it.
//!
//! Neither client has a dependency. The checkers come from their registries, at one pinned version, into `target/tools`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::failures::Failures;
use crate::report::Verdict;
use crate::tally::Tally;
use crate::{Place, process, servers};

const MYPY: &str = "2.4.1";
const TYPESCRIPT: &str = "5.9.3";
/// The types of the oldest Node that the client is for.
const NODE_TYPES: &str = "18.19.130";
const DIST: &str = "clients/typescript/dist";
/// An installation that must not ask anybody: there is nothing to fetch.
const NPM_INSTALL: [&str; 5] = ["install", "--offline", "--no-audit", "--no-fund", "--loglevel=error"];

/// How the part ended, with the tests of both suites.
pub(crate) struct Checked {
    pub(crate) verdict: Verdict,
    pub(crate) tally: Tally,
    pub(crate) failures: Failures,
}

pub(crate) fn check(place: &Place) -> anyhow::Result<Checked> {
    servers::install_missing(place)?;
    let mut checked =
        Checked { verdict: Verdict::Ok, tally: Tally::default(), failures: Failures::default() };
    // As the part `build` does it: another selection has other features, and would compile everything once more.
    checked.add("build", process::stream(place.cargo(&["build", "--workspace", "--all-targets"]))?);
    if checked.verdict == Verdict::Ok {
        let folder = Folder::new(place)?;
        python(place, &mut checked).context("the client for Python")?;
        node(place, &folder.0, &mut checked).context("the client for Node")?;
    }
    Ok(checked)
}

/// `clients/typescript/dist`, made of its source.
pub(crate) fn write_typescript(place: &Place) -> anyhow::Result<()> {
    servers::install_missing(place)?;
    let dist = place.root.join(DIST);
    if dist.exists() {
        std::fs::remove_dir_all(&dist).context("cannot remove what was compiled before")?;
    }
    compile(place, &dist)
}

impl Checked {
    /// The first thing that went wrong is the reason; the rest is in the output.
    fn add(&mut self, what: &str, verdict: Verdict) {
        if let (Verdict::Ok, Verdict::Failed(reason)) = (&self.verdict, verdict) {
            self.verdict = Verdict::Failed(format!("{what}: {reason}"));
        }
    }

    fn add_tests(
        &mut self,
        what: &str,
        mut command: std::process::Command,
        place: &Place,
    ) -> anyhow::Result<()> {
        command.env("QUELL_BIN", place.root.join("target/debug/quell")).env("QUELL_CLIENT_INSTALLED", "1");
        let (verdict, tally, failures) = process::stream_tests(command)?;
        self.add(what, verdict);
        if tally.ran() == 0 {
            self.add(what, Verdict::Failed("no test ran".to_owned()));
        }
        self.tally += tally;
        self.failures.append(failures);
        Ok(())
    }
}

fn python(place: &Place, checked: &mut Checked) -> anyhow::Result<()> {
    let client = place.root.join("clients/python");
    let mypy = environment(place, &format!("mypy-{MYPY}"), Some(&format!("mypy=={MYPY}")))?;
    let mut types = place.command(mypy.join("bin/mypy"));
    types.current_dir(&client).env("MYPYPATH", "tests").args(["--strict", "src", "tests", "examples"]);
    checked.add("mypy", process::stream(types)?);

    let installed = environment(place, "client-python", None)?;
    forget_builds(&client)?;
    let mut install = place.command(installed.join("bin/pip"));
    install.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--force-reinstall",
        "./clients/python",
    ]);
    done(install, "the client cannot be installed")?;
    forget_builds(&client)?;

    let mut tests = place.command(installed.join("bin/python"));
    // Byte code beside the tests would be a file of the repository that nobody asked for.
    tests.current_dir(&client).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
    tests.arg("tests/run.py");
    checked.add_tests("tests in Python", tests, place)
}

/// An environment below `target/tools` with one package in it.
fn environment(place: &Place, name: &str, package: Option<&str>) -> anyhow::Result<PathBuf> {
    let folder = place.root.join("target/tools").join(name);
    let complete = folder.join("complete");
    if complete.is_file() {
        return Ok(folder);
    }
    let mut made = place.command("python3");
    made.args(["-m", "venv", "--clear"]).arg(&folder);
    done(made, "cannot make an environment for Python")?;
    if let Some(package) = package {
        let mut filled = place.command(folder.join("bin/pip"));
        filled.args(["install", "--quiet", "--disable-pip-version-check", package]);
        done(filled, "cannot install a checker")?;
    }
    std::fs::write(complete, "").context("cannot mark the environment as complete")?;
    Ok(folder)
}

/// What pip leaves beside the source would be installed again the next time, also when its source is gone.
fn forget_builds(client: &Path) -> anyhow::Result<()> {
    for left in ["build", "src/quell_client.egg-info"].map(|name| client.join(name)) {
        if left.exists() {
            std::fs::remove_dir_all(&left).with_context(|| format!("cannot remove {}", left.display()))?;
        }
    }
    Ok(())
}

fn node(place: &Place, folder: &Path, checked: &mut Checked) -> anyhow::Result<()> {
    let client = place.root.join("clients/typescript");
    let compiled = folder.join("dist");
    compile(place, &compiled)?;
    if contents(&compiled)? != contents(&place.root.join(DIST))? {
        let reason = format!("{DIST} is not what its source makes of it: run `cargo xtask typescript`");
        println!("{reason}");
        checked.add("dist", Verdict::Failed(reason));
    }
    let mut types = compiler(place)?;
    types.current_dir(&client).args(["--noEmit", "--allowJs", "--checkJs", "--strict", "--target", "es2022"]);
    types.args(["--module", "nodenext", "--types", "node"]);
    types.args(["examples/send.mjs", "examples/worker.mjs", "examples/receiver.mjs"]);
    checked.add("types of the examples", process::stream(types)?);

    // As the README says: a link to the folder.
    let linked = project(&folder.join("linked"))?;
    let mut install = place.command("npm");
    install.current_dir(&linked).args(NPM_INSTALL).arg(&client);
    done(install, "the client cannot be installed")?;
    let mut used = place.command("node");
    used.current_dir(&linked).args([
        "--input-type=module",
        "--eval",
        "import { Worker } from 'quell-client'; Worker.name",
    ]);
    checked.add("import", process::stream(used)?);

    // As it would be published: only what is in the archive.
    let packed = project(&folder.join("packed"))?;
    let mut pack = place.command("npm");
    pack.current_dir(&packed).args(["pack", "--silent"]).arg(&client);
    let archive = String::from_utf8(process::capture(pack)?).context("the name of an archive is text")?;
    let mut install = place.command("npm");
    install.current_dir(&packed).args(NPM_INSTALL).arg(format!("./{}", archive.trim()));
    done(install, "the packed client cannot be installed")?;
    for part in ["test", "examples", "README.md", "../vectors.json"] {
        copy(&client.join(part), &packed.join(part))?;
    }
    let mut tests = place.command("node");
    tests.current_dir(&packed).args(["--test", "--test-reporter=./test/reporter.mjs"]);
    let mut files: Vec<_> =
        contents(&packed.join("test"))?.into_keys().filter(|name| is_test(name)).collect();
    files.sort();
    tests.args(files.iter().map(|name| format!("test/{name}")));
    checked.add_tests("tests in Node", tests, place)
}

fn is_test(name: &str) -> bool {
    name.ends_with(".test.mjs")
}

/// An empty project for npm.
fn project(folder: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(folder).context("cannot make a folder below target")?;
    std::fs::write(folder.join("package.json"), "{\"private\":true}\n").context("cannot write a project")?;
    Ok(folder.to_path_buf())
}

/// The compiler, installed first if need be, with the types of Node.
fn compiler(place: &Place) -> anyhow::Result<std::process::Command> {
    let folder = place.root.join("target/tools").join(format!("typescript-{TYPESCRIPT}-{NODE_TYPES}"));
    let program = folder.join("node_modules/typescript/bin/tsc");
    if !program.is_file() {
        println!("TypeScript {TYPESCRIPT} is not here yet; installing it takes some seconds");
        project(&folder)?;
        let mut install = place.command("npm");
        install.current_dir(&folder).args(["install", "--no-audit", "--no-fund", "--loglevel=error"]);
        install.args([format!("typescript@{TYPESCRIPT}"), format!("@types/node@{NODE_TYPES}")]);
        done(install, "cannot install the compiler")?;
    }
    let mut command = place.command("node");
    command.arg(program).arg("--typeRoots").arg(folder.join("node_modules/@types"));
    Ok(command)
}

fn compile(place: &Place, into: &Path) -> anyhow::Result<()> {
    let mut command = compiler(place)?;
    command.args(["--project", "clients/typescript", "--outDir"]).arg(into);
    done(command, "the client does not compile")
}

/// Runs a program without which there is nothing to go on with.
fn done(command: std::process::Command, otherwise: &str) -> anyhow::Result<()> {
    match process::stream(command)? {
        Verdict::Ok => Ok(()),
        Verdict::Failed(reason) => anyhow::bail!("{otherwise}: {reason}"),
    }
}

/// The files of a folder by name; empty when it is not there.
fn contents(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    if !folder.is_dir() {
        return Ok(found);
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry.context("cannot read a folder")?.path();
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.insert(name, bytes);
    }
    Ok(found)
}

/// A file, or a folder of files.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_file() {
        std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
        return Ok(());
    }
    std::fs::create_dir_all(to).context("cannot make a folder below target")?;
    for (name, bytes) in contents(from)? {
        std::fs::write(to.join(name), bytes).context("cannot copy a file")?;
    }
    Ok(())
}

/// A folder for one run; gone when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(place: &Place) -> anyhow::Result<Self> {
        let folder = place.root.join("target/tmp").join(format!("clients-{}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make a folder below target")?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_went_wrong_is_the_reason() {
        let mut checked =
            Checked { verdict: Verdict::Ok, tally: Tally::default(), failures: Failures::default() };
        checked.add("one", Verdict::Ok);
        checked.add("two", Verdict::Failed("exit code 1".to_owned()));
        checked.add("three", Verdict::Failed("exit code 2".to_owned()));
        assert_eq!(checked.verdict, Verdict::Failed("two: exit code 1".to_owned()));
    }

    #[test]
    fn what_was_compiled_is_compared_by_names_and_bytes() {
        let folder = std::env::temp_dir().join(format!("quell-xtask-clients-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::write(one.join("a.js"), "1").unwrap();
        copy(&one, &other).unwrap();
        assert_eq!(contents(&one).unwrap(), contents(&other).unwrap());
        std::fs::write(other.join("b.js"), "").unwrap();
        assert_ne!(contents(&one).unwrap(), contents(&other).unwrap());
        assert!(contents(&folder.join("none")).unwrap().is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
