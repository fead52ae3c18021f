//! Runs one driver: starts it, gives it its time, reads its answer, and leaves none of its processes behind.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::answer::{self, Answer};
use crate::limits;

/// What came of a cell: an answer, or why there is none.
pub type Outcome = Result<Answer, String>;

/// Starts the command with its last arguments and waits for its answer.
pub async fn run(mut command: Command, shape: &str, address: &str, sizes: &str, limit: Duration) -> Outcome {
    command.args([shape, address, sizes]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A group of its own, so that servers which a driver started end with it, however it ends.
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start its driver: {error}"))?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let (Some(mut stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("its output was asked for as pipes and is none".to_owned());
    };
    let saying = tokio::spawn(async move { last_of(&mut stderr).await });
    let mut printed = String::new();
    let ended = tokio::time::timeout(limit, async {
        stdout.read_to_string(&mut printed).await?;
        child.wait().await
    })
    .await;
    // Before the rest is read: a server that the driver started may have its standard error.
    drop(group);
    let said = saying.await.ok().and_then(Result::ok).unwrap_or_default();
    match ended {
        Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
        Ok(Err(error)) => Err(format!("cannot read its answer: {error}")),
        Ok(Ok(status)) if status.success() => answer::read(&printed),
        Ok(Ok(_)) => Err(answer::reason(&String::from_utf8_lossy(&said))),
    }
}

/// Reads to the end and keeps the latest bytes.
async fn last_of(from: &mut (impl tokio::io::AsyncRead + Unpin)) -> std::io::Result<Vec<u8>> {
    let (mut kept, mut piece) = (Vec::new(), [0_u8; 1_024]);
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(&piece[..read]);
        let surplus = kept.len().saturating_sub(limits::SAID);
        kept.drain(..surplus);
    }
}

/// Ends whatever is left of a driver's group.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // None left is what is wanted.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script, "driver"]);
        command
    }

    async fn ran(script: &str, limit: Duration) -> Outcome {
        run(shell(script), "jobs", "here", "{}", limit).await
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_driver_gets_shape_address_and_sizes_and_answers_with_a_line() {
        let answer =
            ran(r#"test "$1 $2 $3" = "jobs here {}" && echo '{"figures":{"one":2}}'"#, LONG).await.unwrap();
        assert_eq!(answer.figure("one"), Some(2.0));
    }

    #[tokio::test]
    async fn a_driver_that_fails_or_says_nothing_has_a_reason() {
        assert_eq!(ran("echo Error: no disk >&2; exit 3", LONG).await, Err("Error: no disk".to_owned()));
        assert_eq!(ran("true", LONG).await, Err("it printed nothing".to_owned()));
    }

    #[tokio::test]
    async fn a_driver_that_does_not_end_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        assert_eq!(ran(&script, Duration::from_secs(1)).await, Err("no answer within 1 s".to_owned()));
        let child: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        // The system may need a moment to take it away.
        for _ in 0..1_000 {
            if state().is_empty() || state().contains(") Z") {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("process {child} still runs: {}", state());
    }
}
