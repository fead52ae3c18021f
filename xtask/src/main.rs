//! The chores of this repository, behind one command that needs nothing installed but Rust.
//!
//! `cargo xtask` prints what there is to do. `cargo xtask test` is the whole judgement on a change, and the only
//! thing `.ci/run` calls: what passes here passes there, because it is the same code. The generators (`schema`,
//! `config-schema`, `typescript`) rewrite committed files whose truth lives in the crates, so that nobody edits them by hand.
//!
//! This file reads the command line and hands over; `parts.rs` knows what is checked and in which order.

mod advisories;
mod api;
mod clients;
mod deny;
mod dependencies;
mod docs;
mod failures;
mod generate;
mod library;
mod links;
mod parts;
mod process;
mod report;
mod servers;
mod silence;
mod snippets;
mod tally;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::parts::{Part, Selection};
use crate::report::Verdict;

const HELP: &str = "\
Chores of the Quell repository.

Usage: cargo xtask COMMAND

Commands:
  test [--part NAME]... [-- ARGS]   everything CI checks; ARGS go to `cargo test` (a name to filter by, say)
  with-servers [--inside FOLDER] -- PROGRAM [ARGS]
                                    run a program beside the servers that the stores' tests need; their data is
                                    in memory if there is room, or in FOLDER (for figures: a folder on a disk)
  advisories                        whether anything is known against a dependency, and how old that knowledge is
  fuzz [--minutes N] [--target NAME] [--seed N]
                                    hostile input for every parser, or for one; finds are kept in its corpus
  compare [--short] [--rounds N] [--system NAME] [--shape NAME] [--inside FOLDER] [--write]
                                    Quell beside other systems, which it installs: the same work by turns; --help says more
  schema                            write crates/quell-store-sqlite/schema.sql from the migrations
  config-schema                     write docs/reference/quell.schema.json from the configuration types
  typescript                        write clients/typescript/dist from its source, with a pinned compiler
  help                              this text

Parts of `test`, in the order they run:
";

/// What one command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Test(Selection),
    WithServers { inside: Option<PathBuf>, program: Vec<String> },
    Advisories,
    Fuzz(Vec<String>),
    Compare(Vec<String>),
    Schema,
    ConfigSchema,
    Typescript,
}

fn main() -> ExitCode {
    let command = match parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("xtask: {problem}\nRun `cargo xtask` for help.");
            return ExitCode::from(2);
        }
    };
    match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked. A code that is not zero without an error means that it ran to its end and the verdict is bad.
fn run(command: Command) -> anyhow::Result<ExitCode> {
    if command == Command::Help {
        print!("{}", help());
        return Ok(ExitCode::SUCCESS);
    }
    let place = Place::find()?;
    match command {
        Command::Help => {}
        Command::Test(selection) => {
            let good = parts::run(&place, &selection)?;
            return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        Command::WithServers { inside, program } => return servers::around(&place, inside, &program),
        Command::Advisories => return Ok(code(advisories::check(&place)?)),
        Command::Fuzz(options) => {
            let mut command = place.cargo(&["run", "--release", "--package", "quell-fuzz", "--"]);
            command.args(options);
            return Ok(code(process::stream(command)?));
        }
        Command::Compare(options) => {
            servers::install_missing(&place)?;
            let mut command = place.cargo(&["run", "--release", "--package", "quell-bench-compare", "--"]);
            command.args(options);
            return Ok(code(process::stream(command)?));
        }
        Command::Schema => generate::schema(&place)?,
        Command::ConfigSchema => generate::config_schema(&place)?,
        Command::Typescript => clients::write_typescript(&place)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn code(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Ok => ExitCode::SUCCESS,
        Verdict::Failed(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn parse(args: impl Iterator<Item = String>) -> anyhow::Result<Command> {
    let mut args = args;
    let Some(name) = args.next() else { return Ok(Command::Help) };
    let command = match name.as_str() {
        "help" | "--help" | "-h" => return Ok(Command::Help),
        "test" => return parse_test(args),
        "with-servers" => return parse_with_servers(args),
        "fuzz" => return Ok(Command::Fuzz(args.collect())),
        "compare" => return Ok(Command::Compare(args.collect())),
        "advisories" => Command::Advisories,
        "schema" => Command::Schema,
        "config-schema" => Command::ConfigSchema,
        "typescript" => Command::Typescript,
        other => anyhow::bail!("there is no command `{other}`"),
    };
    match args.next() {
        None => Ok(command),
        Some(extra) => anyhow::bail!("`{name}` takes no argument, got `{extra}`"),
    }
}

fn parse_test(mut args: impl Iterator<Item = String>) -> anyhow::Result<Command> {
    let mut selection = Selection::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--part" => {
                let name = args.next().context("`--part` needs the name of a part")?;
                selection.parts.push(Part::named(&name)?);
            }
            "--" => selection.test_args.extend(args.by_ref()),
            other => match other.strip_prefix("--part=") {
                Some(name) => selection.parts.push(Part::named(name)?),
                None => {
                    anyhow::bail!("`test` does not know `{other}` (arguments for `cargo test` go after `--`)")
                }
            },
        }
    }
    Ok(Command::Test(selection))
}

/// The dashes may be left out: nothing but the program can follow.
fn parse_with_servers(args: impl Iterator<Item = String>) -> anyhow::Result<Command> {
    let mut args = args.peekable();
    let mut inside = None;
    match args.peek().map(String::as_str) {
        Some("--help" | "-h") => return Ok(Command::Help),
        Some("--inside") => {
            args.next();
            inside = Some(PathBuf::from(args.next().context("`--inside` needs a folder")?));
        }
        _ => {}
    }
    args.next_if(|arg| arg == "--");
    let program: Vec<_> = args.collect();
    anyhow::ensure!(!program.is_empty(), "`with-servers` needs a program to run: `with-servers -- PROGRAM`");
    Ok(Command::WithServers { inside, program })
}

fn help() -> String {
    let parts: String =
        Part::ALL.iter().map(|part| format!("  {:<8} {}\n", part.name(), part.explain())).collect();
    format!("{HELP}{parts}")
}

/// Where the repository is and which cargo started us: everything a chore needs to know of its surroundings.
struct Place {
    root: PathBuf,
    cargo: OsString,
    /// Nothing of ours has been built here yet.
    fresh: bool,
}

impl Place {
    /// Cargo tells both to the programs it runs, whatever folder the person stands in.
    fn find() -> anyhow::Result<Self> {
        let manifest =
            std::env::var_os("CARGO_MANIFEST_DIR").context("start this program as `cargo xtask`")?;
        let root = PathBuf::from(manifest).parent().context("xtask lies in the root folder")?.to_path_buf();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let fresh = is_fresh(&root.join("target/debug/incremental"));
        Ok(Self { root, cargo, fresh })
    }

    /// A cargo command that will run in the root of the repository.
    fn cargo(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.command(&self.cargo);
        command.args(args);
        // Cargo tells us about ourselves. Build scripts that look at these would be run again, and all that depends on them
        // compiled again, each time somebody changes between `cargo build` and `cargo xtask`.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of_us| name.to_string_lossy().starts_with(of_us))
            {
                command.env_remove(name);
            }
        }
        if self.fresh {
            // What is built once, as by CI, needs nothing to be quick the second time.
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// Any other program, also in the root. Nothing we start may wait for a person to type.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
        let mut command = std::process::Command::new(program);
        command.current_dir(&self.root).stdin(std::process::Stdio::null());
        command
    }
}

/// Whether no build has left anything that would make the next one quicker.
fn is_fresh(incremental: &std::path::Path) -> bool {
    let Ok(entries) = std::fs::read_dir(incremental) else { return true };
    !entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("quell_core-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_fresh_until_the_core_was_built_for_a_next_time() {
        let folder = std::env::temp_dir().join(format!("quell-xtask-{}", std::process::id()));
        assert!(is_fresh(&folder));
        for (built, fresh) in [("xtask-1a", true), ("quell_core-2b", false)] {
            std::fs::create_dir_all(folder.join(built)).unwrap();
            assert_eq!(is_fresh(&folder), fresh, "{built}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn parsed(line: &str) -> anyhow::Result<Command> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn no_argument_means_help_and_help_names_every_part() {
        assert_eq!(parsed("").unwrap(), Command::Help);
        let text = help();
        for part in Part::ALL {
            assert!(text.contains(part.name()), "{} is missing", part.name());
        }
    }

    #[test]
    fn parts_are_chosen_by_name_and_the_rest_goes_to_cargo_test() {
        let wanted = Selection {
            parts: vec![Part::Fmt, Part::Tests],
            test_args: ["lease", "--", "--nocapture"].map(str::to_owned).to_vec(),
        };
        let got = parsed("test --part fmt --part=tests -- lease -- --nocapture").unwrap();
        assert_eq!(got, Command::Test(wanted));
        assert_eq!(parsed("test").unwrap(), Command::Test(Selection::default()));
    }

    #[test]
    fn what_follows_with_servers_is_the_program_as_it_stands() {
        let wanted = ["cargo", "test", "--", "--nocapture"].map(str::to_owned).to_vec();
        let got = parsed("with-servers -- cargo test -- --nocapture").unwrap();
        assert_eq!(got, Command::WithServers { inside: None, program: wanted.clone() });
        assert_eq!(parsed("with-servers cargo test -- --nocapture").unwrap(), got);
        let on_disk = parsed("with-servers --inside /disk -- cargo test -- --nocapture").unwrap();
        assert_eq!(on_disk, Command::WithServers { inside: Some("/disk".into()), program: wanted });
    }

    #[test]
    fn what_follows_fuzz_is_for_the_fuzzer() {
        let wanted = ["--minutes", "3", "--target", "url"].map(str::to_owned).to_vec();
        assert_eq!(parsed("fuzz --minutes 3 --target url").unwrap(), Command::Fuzz(wanted));
    }

    #[test]
    fn what_follows_compare_is_for_the_comparison() {
        let wanted = ["--short", "--system", "huey"].map(str::to_owned).to_vec();
        assert_eq!(parsed("compare --short --system huey").unwrap(), Command::Compare(wanted));
    }

    #[test]
    fn a_mistyped_command_line_is_refused_with_the_reason() {
        for (line, reason) in [
            ("tset", "no command `tset`"),
            ("schema now", "takes no argument"),
            ("advisories now", "takes no argument"),
            ("test --part", "needs the name"),
            ("test --part fnt", "fmt, clippy"),
            ("test lease", "after `--`"),
            ("with-servers --", "needs a program"),
            ("with-servers --inside", "needs a folder"),
        ] {
            let text = parsed(line).unwrap_err().to_string();
            assert!(text.contains(reason), "{line}: {text}");
        }
    }
}
