//! Runs other programs with their output shown as it comes.
//!
//! Cargo talks on standard error, which the child inherits, so colours and progress bars stay. The test binaries
//! report on standard output, which is passed on line by line while the tally and the failures read along. Lines are
//! handled as bytes: a test may print anything.

use std::io::{BufReader, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use anyhow::Context as _;

use crate::failures::Failures;
use crate::report::Verdict;
use crate::silence::{self, Silence};
use crate::tally::Tally;

/// Lines that were read and not yet passed on.
const LINES_AHEAD: usize = 64;

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
    let pid = child.id();
    let (tally, failures) = pass_on(lines_of(BufReader::new(output)), std::io::stdout(), |silence| {
        if let Some(verdict) = silence.verdict() {
            println!("== the test binary was {verdict}");
            silence::kill_children(pid);
        }
    })?;
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

/// The lines as they come; reading is left to a thread, so that whoever wants them can also notice that none come.
fn lines_of(mut from: impl std::io::BufRead + Send + 'static) -> Receiver<std::io::Result<Vec<u8>>> {
    let (tell, lines) = sync_channel(LINES_AHEAD);
    std::thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            let read = from.read_until(b'\n', &mut line);
            let goes_on = matches!(read, Ok(1..));
            if !matches!(read, Ok(0)) && tell.send(read.map(|_| line)).is_err() || !goes_on {
                return;
            }
        }
    });
    lines
}

fn pass_on(
    from: Receiver<std::io::Result<Vec<u8>>>,
    mut to: impl std::io::Write,
    on_silence: impl Fn(&Silence),
) -> anyhow::Result<(Tally, Failures)> {
    let mut sum = Tally::default();
    let mut failures = Failures::default();
    let mut silence = Silence::default();
    loop {
        let line = match from.recv_timeout(silence::PATIENCE) {
            Ok(line) => line.context("cannot read the child's output")?,
            Err(RecvTimeoutError::Timeout) => {
                on_silence(&silence);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((sum, failures)),
        };
        to.write_all(&line).and_then(|()| to.flush()).context("cannot pass on the child's output")?;
        let text = String::from_utf8_lossy(&line);
        failures.read(&text);
        silence.read(&text);
        if let Some(tally) = Tally::of_line(&text) {
            sum += tally;
        }
    }
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
        let (tally, _) = pass_on(lines_of(&said[..]), &mut heard, |_| {}).unwrap();
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
