//! Runs other programs with their output shown as it comes.
//!
//! Cargo talks on standard error, which the child inherits, so colours and progress bars stay. The test binaries
//! report on standard output, which is passed on line by line while the tally and the failures read along. Lines are
//! handled as bytes: a test may print anything.

use std::io::{BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Context as _;

use crate::failures::Failures;
use crate::report::Verdict;
use crate::tally::Tally;

/// Runs a program whose exit code says it all.
pub(crate) fn stream(mut command: Command) -> anyhow::Result<Verdict> {
    announce(&command);
    let status = command.status().with_context(|| format!("cannot start {}", shown(&command)))?;
    Ok(verdict(status))
}

/// Runs `cargo test`, counts the tests on the way and keeps what the failed ones said.
pub(crate) fn stream_tests(mut command: Command) -> anyhow::Result<(Verdict, Tally, Failures)> {
    announce(&command);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", shown(&command)))?;
    let output = child.stdout.take().context("the child's standard output was asked for as a pipe")?;
    let (tally, failures) = pass_on(BufReader::new(output), std::io::stdout())?;
    let status = child.wait().context("cannot wait for the child")?;
    Ok((verdict(status), tally, failures))
}

/// Runs a program and returns what it printed; its standard error is shown.
pub(crate) fn capture(mut command: Command) -> anyhow::Result<Vec<u8>> {
    announce(&command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", shown(&command)))?;
    match verdict(output.status) {
        Verdict::Ok => Ok(output.stdout),
        Verdict::Failed(reason) => anyhow::bail!("{} ended with {reason}", shown(&command)),
    }
}

fn pass_on(
    mut from: impl std::io::BufRead,
    mut to: impl std::io::Write,
) -> anyhow::Result<(Tally, Failures)> {
    let mut sum = Tally::default();
    let mut failures = Failures::default();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).context("cannot read the child's output")? > 0 {
        to.write_all(&line).and_then(|()| to.flush()).context("cannot pass on the child's output")?;
        let text = String::from_utf8_lossy(&line);
        failures.read(&text);
        if let Some(tally) = Tally::of_line(&text) {
            sum += tally;
        }
        line.clear();
    }
    Ok((sum, failures))
}

fn verdict(status: ExitStatus) -> Verdict {
    match status.code() {
        Some(0) => Verdict::Ok,
        Some(code) => Verdict::Failed(format!("exit code {code}")),
        None => Verdict::Failed(status.to_string()),
    }
}

fn announce(command: &Command) {
    println!("$ {}", shown(command));
    // Standard output may be a pipe, and the child writes to the same place by itself.
    let _ = std::io::stdout().flush();
}

/// The command as a person would type it; the program without the folder it lies in.
fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program()).to_string_lossy();
    command.get_args().fold(program.into_owned(), |text, arg| format!("{text} {}", arg.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_passed_on_unchanged_while_results_are_added_up() {
        let said = b"running 1 test\n\xff\xfe\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n\
            test result: FAILED. 2 passed; 1 failed; 3 ignored; 0 measured\nno newline at the end";
        let mut heard = Vec::new();
        let (tally, _) = pass_on(&said[..], &mut heard).unwrap();
        assert_eq!(heard, said);
        assert_eq!(tally, Tally { passed: 3, failed: 1, ignored: 3 });
    }

    #[test]
    fn a_command_is_shown_without_the_folder_of_its_program() {
        let mut command = Command::new("some/where/cargo");
        command.args(["fmt", "--check"]);
        assert_eq!(shown(&command), "cargo fmt --check");
    }
}
