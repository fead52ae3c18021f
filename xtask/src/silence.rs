//! Ends a test binary that has said nothing for too long.
//!
//! A test that waits for something that never comes would keep the run from its end, and the report from being written.
//! Tests bound their own waits; this is for the one that does not. While a binary is being compiled nothing is said on its
//! standard output for minutes, so silence counts only between the line with which a binary begins and its closing line.

use std::time::Duration;

/// The longest test alone takes three minutes on two busy processors.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// What the lines so far say about the binary that runs now.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    inside: bool,
    slow: Vec<String>,
}

impl Silence {
    /// Reads one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            *self = Silence { inside: true, slow: Vec::new() };
        } else if line.starts_with("test result: ") {
            *self = Silence::default();
        } else if let Some(line) = line.strip_prefix("test ") {
            if let Some((name, _)) = line.split_once(" has been running for over ") {
                self.slow.push(name.to_owned());
            } else if let Some((name, _)) = line.split_once(" ... ") {
                self.slow.retain(|slow| slow != name);
            }
        }
    }

    /// What to say of a binary that is ended now; nothing when none is at work.
    pub(crate) fn verdict(&self) -> Option<String> {
        let tests = match self.slow.as_slice() {
            [] => "no test is known to be slow".to_owned(),
            slow => format!("not ended: {}", slow.join(", ")),
        };
        let minutes = PATIENCE.as_secs() / 60;
        self.inside.then(|| format!("silent for {minutes} minutes and therefore killed; {tests}"))
    }
}

/// Kills the children of a process: the test binary, when the process is cargo.
pub(crate) fn kill_children(of: u32) {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        if let Some(pid) = rustix::process::Pid::from_raw(child) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &[&str]) -> Option<String> {
        let mut silence = Silence::default();
        lines.iter().for_each(|line| silence.read(line));
        silence.verdict()
    }

    #[test]
    fn silence_counts_while_a_binary_runs_and_the_slow_tests_are_named() {
        let [begin, end] = ["running 3 tests\n", "test result: ok. 3 passed; 0 failed\n"];
        let slow = [
            "test a has been running for over 60 seconds\n",
            "test b::c has been running for over 60 seconds\n",
        ];
        assert_eq!(after(&[]), None);
        assert_eq!(after(&["   Compiling quell\n"]), None);
        assert_eq!(after(&[begin, end]), None);
        assert!(after(&[begin]).unwrap().ends_with("no test is known to be slow"));
        let said = after(&[begin, slow[0], slow[1], "test a ... ok\n"]).unwrap();
        assert!(said.ends_with("not ended: b::c"), "{said}");
        assert_eq!(after(&[begin, slow[0], end]), None);
        assert!(after(&[begin, slow[0], end, "running 1 test\n"]).unwrap().ends_with("to be slow"));
    }

    #[test]
    fn the_children_of_a_process_are_killed_and_the_process_goes_on() {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "sleep 1000; echo $?"]).stdout(std::process::Stdio::piped());
        let shell = command.spawn().unwrap();
        let pid = shell.id();
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(shell.wait_with_output()));
        // The shell may not have started it yet.
        let output = loop {
            kill_children(pid);
            if let Ok(output) = end.recv_timeout(Duration::from_millis(20)) {
                break output.unwrap();
            }
        };
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"137\n"[..]));
    }
}
