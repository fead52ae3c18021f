//! Hook and ingest: what capturing a coding agent's session costs the agent, and how fast a long transcript is read.
//!
//! A hook is a process, so it is measured as one, by turns with the smallest process that could do the same: it opens a
//! file, appends 200 bytes, syncs them and exits (`quell-minimal`, beside the program itself). Both are started in the same
//! way from here, in one run, so that the ratio does not depend on the machine's load.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::place::Fresh;
use crate::processes::Program;
use crate::{Figure, Sizes, Watch, grouped, percentile, targets};

/// Runs before the first that counts.
const WARM_UP: usize = 5;
/// Hooks while another process holds the database.
const LOCKED: usize = 15;
/// What an ingest stores together; the raw limit writes in pieces of the same size.
const PIECE: usize = 2 << 20;

/// An agent's home, and the programs.
struct World<'a> {
    home: TempDir,
    program: &'a Program,
    minimal: PathBuf,
}

impl<'a> World<'a> {
    fn new(fresh: &Fresh, program: Option<&'a Program>) -> anyhow::Result<Self> {
        let program = program.context("there is no program to start as a hook")?;
        let folder = fresh.folder().context("hooks are measured on a disk")?;
        let home = TempDir::new_in(folder)?;
        let minimal = program.path.with_file_name("quell-minimal");
        anyhow::ensure!(
            minimal.exists(),
            "{} is missing; `cargo build --release` makes it",
            minimal.display()
        );
        Ok(World { home, program, minimal })
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn database(&self) -> PathBuf {
        self.data().join("quell/quell.db")
    }

    fn quell(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.args).args(args);
        for name in ["QUELL_STORE", "DEBOUNCE_SECONDS", "CLAUDE_CONFIG_DIR"] {
            command.env_remove(name);
        }
        let home = self.home.path();
        command
            .env("HOME", home)
            .env("XDG_DATA_HOME", self.data())
            .env("XDG_CONFIG_HOME", home.join("config"));
        command
    }

    /// Milliseconds from the start of a process to its end.
    fn timed(command: &mut Command, input: &[u8]) -> anyhow::Result<f64> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = Watch::start();
        let mut child = command.spawn().with_context(|| format!("{command:?}"))?;
        let mut stdin = child.stdin.take().context("the pipe is there")?;
        stdin.write_all(input)?;
        drop(stdin);
        let ended = child.wait()?;
        let took = watch.millis();
        anyhow::ensure!(ended.success(), "{command:?} ended with {ended}");
        Ok(took)
    }

    fn hook(&self, n: usize) -> anyhow::Result<f64> {
        let event = format!(
            r#"{{"session_id":"bench","transcript_path":"{}/none.jsonl","cwd":"/srv/example","hook_event_name":"PostToolUse","permission_mode":"default","tool_name":"Bash","tool_input":{{"command":"cargo test"}},"tool_response":{{"stdout":"ok {n}","stderr":""}},"tool_use_id":"toolu_{n}"}}"#,
            self.home.path().display(),
        );
        World::timed(&mut self.quell(&["hook"]), event.as_bytes())
    }

    fn minimal(&self) -> anyhow::Result<f64> {
        World::timed(Command::new(&self.minimal).arg(self.home.path().join("minimal")), b"")
    }
}

pub(crate) fn run(fresh: &Fresh, sizes: &Sizes, program: Option<&Program>) -> anyhow::Result<Vec<Figure>> {
    let world = World::new(fresh, program)?;
    let (mut hooks, mut minimal) = (Vec::new(), Vec::new());
    // The first one makes the database, by way of a worker.
    world.hook(0)?;
    let made = Watch::start();
    while !world.database().exists() {
        anyhow::ensure!(made.millis() < 60_000.0, "no worker has made the database in a minute");
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    for n in 0..sizes.hooks + WARM_UP {
        let (one, other) = (world.minimal()?, world.hook(n)?);
        if n >= WARM_UP {
            minimal.push(one);
            hooks.push(other);
        }
    }
    let locked = while_locked(&world)?;
    let median = |samples: &mut Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        percentile(samples, 0.5)
    };
    let (own, raw) = (median(&mut hooks), median(&mut minimal));
    let reached = own <= targets::HOOK_TIMES * raw;
    let worst = locked.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Figure::new("hook", "one hook event, median, against a minimal process", own, "ms")
            .against(raw)
            .target(format!("≤ {} × the minimal process", targets::HOOK_TIMES), reached),
        Figure::new("hook", "one hook event, p90", percentile(&hooks, 0.9), "ms")
            .against(percentile(&minimal, 0.9)),
        Figure::new("hook", "the slowest hook while another process holds the database", worst, "ms")
            .at_most(targets::HOOK_LOCKED_MS),
    ])
}

/// Hooks that meet a writer which does not let go.
fn while_locked(world: &World<'_>) -> anyhow::Result<Vec<f64>> {
    let holder = Connection::open(world.database())?;
    holder.busy_timeout(std::time::Duration::from_secs(30))?;
    holder.execute_batch("BEGIN IMMEDIATE")?;
    let samples = (0..LOCKED).map(|n| world.hook(n)).collect();
    holder.execute_batch("ROLLBACK")?;
    samples
}

pub(crate) fn ingest(fresh: &Fresh, sizes: &Sizes, program: Option<&Program>) -> anyhow::Result<Vec<Figure>> {
    let world = World::new(fresh, program)?;
    let folder = world.home.path().join("projects");
    std::fs::create_dir(&folder)?;
    let path = folder.join("bench.jsonl");
    let bytes = write_transcript(&path, sizes.transcript_bytes)?;
    let megabytes = bytes as f64 / 1e6;
    let raw = megabytes / copy_synced(&path, &world.home.path().join("copy"))? * 1e3;
    let (first, resident) = import(&world, &folder)?;
    let mut file = std::fs::OpenOptions::new().append(true).open(&path)?;
    file.write_all(line(usize::MAX, 40).as_bytes())?;
    drop(file);
    let (second, _) = import(&world, &folder)?;
    let size = grouped(megabytes.round());
    let mut figures = vec![
        Figure::new(
            "ingest",
            format!("a transcript of {size} MB, read and searchable"),
            megabytes / first * 1e3,
            "MB/s",
        )
        .against(raw),
        Figure::new("ingest", "the same again, with one new line", second, "ms"),
    ];
    if let Some(resident) = resident {
        figures
            .push(Figure::new("ingest", "memory of the process", resident, "MB").at_most(targets::INGEST_MB));
    }
    Ok(figures)
}

/// How long an import takes, and the most memory that it had.
fn import(world: &World<'_>, folder: &Path) -> anyhow::Result<(f64, Option<f64>)> {
    let mut command = world.quell(&["sessions", "import"]);
    command.arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let watch = Watch::start();
    let mut child = command.spawn()?;
    let mut most = None;
    let ended = loop {
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        most = resident(&child).or(most);
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    };
    anyhow::ensure!(ended.success(), "the import ended with {ended}");
    Ok((watch.millis(), most))
}

/// The peak, where the system tells it.
fn resident(child: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

/// What the disk can do: the same bytes in synced pieces. In milliseconds.
fn copy_synced(from: &Path, to: &Path) -> anyhow::Result<f64> {
    let bytes = std::fs::read(from)?;
    let mut file = std::fs::File::create(to)?;
    let watch = Watch::start();
    for piece in bytes.chunks(PIECE) {
        file.write_all(piece)?;
        file.sync_data()?;
    }
    let took = watch.millis();
    std::fs::remove_file(to)?;
    Ok(took)
}

/// A transcript like that of a long day: prompts, answers in several lines, tools and what they said.
fn write_transcript(path: &Path, wanted: u64) -> anyhow::Result<u64> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let (mut written, mut n) = (0, 0);
    while written < wanted {
        let words = if n % 4 == 2 { 400 } else { 60 };
        let line = line(n, words);
        written += line.len() as u64;
        file.write_all(line.as_bytes())?;
        n += 1;
    }
    file.flush()?;
    Ok(written)
}

fn line(n: usize, words: usize) -> String {
    const WORDS: [&str; 16] = [
        "coin", "silver", "gold", "price", "source", "retry", "cache", "window", "batch", "merge", "test",
        "build", "index", "page", "order", "café",
    ];
    let mut text = String::new();
    let mut state = n as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..words {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = WORDS[(state >> 60) as usize];
        // Some words are rare, as in life: an index of sixteen words would be a kind one.
        if (state >> 32).is_multiple_of(8) {
            let _ = write!(text, "{word}{} ", (state >> 40) % 5_000);
        } else {
            let _ = write!(text, "{word} ");
        }
    }
    let seconds = n % 86_400;
    let common = format!(
        r#""parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/srv/example/shop","sessionId":"bench","version":"2.1.211","gitBranch":"main","uuid":"00000000-0000-4000-8000-{n:012x}","timestamp":"2026-01-05T{:02}:{:02}:{:02}.000Z""#,
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    match n % 4 {
        0 => format!(
            "{{{common},\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
        ),
        1 => format!(
            "{{{common},\"type\":\"assistant\",\"message\":{{\"id\":\"msg_{n}\",\"model\":\"m\",\"role\":\"assistant\",\"content\":[{{\"type\":\"tool_use\",\"id\":\"t{n}\",\"name\":\"Bash\",\"input\":{{\"command\":\"{}\"}}}}],\"usage\":{{\"input_tokens\":10,\"output_tokens\":20}}}}}}\n",
            text.chars().take(40).collect::<String>()
        ),
        2 => format!(
            "{{{common},\"type\":\"user\",\"message\":{{\"role\":\"user\",\"content\":[{{\"type\":\"tool_result\",\"tool_use_id\":\"t{n}\",\"content\":\"{text}\"}}]}}}}\n"
        ),
        _ => format!(
            "{{{common},\"type\":\"assistant\",\"message\":{{\"id\":\"msg_{n}\",\"model\":\"m\",\"role\":\"assistant\",\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"usage\":{{\"input_tokens\":10,\"output_tokens\":20}}}}}}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_transcript_is_json_with_an_id_of_its_own() {
        let mut ids = std::collections::BTreeSet::new();
        for n in 0..400 {
            let value: serde_json::Value = serde_json::from_str(&line(n, 60)).expect("a line is JSON");
            assert!(ids.insert(value["uuid"].as_str().unwrap().to_owned()));
        }
    }
}
