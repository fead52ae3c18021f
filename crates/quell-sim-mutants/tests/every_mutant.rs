//! Every deliberate bug of `quell-core/src/mutants.rs` is caught, by what `docs/design/mutants.md` says.
//!
//! Two judges look at each: the simulator, whose histories the independent checker reads, and the suite that every store
//! has to pass, here on the memory store. A bug that the page says to be caught by both has to be caught by both. The
//! page also says how many of the first schedules find it, and the first of them; those figures are of the day on which
//! the page was written, because a change of the generator makes other schedules of the same seeds.
//!
//! To write the page anew, which takes minutes: `QUELL_WRITE_REFERENCE=1 cargo test -p quell-sim-mutants`.

extern crate quell_sim_mutants as quell_sim;
extern crate quell_store_tests_mutants as quell_store_tests;

// The same harness and the same list of promises, which pass here without a bug.
#[path = "../../quell-store-tests/tests/memory.rs"]
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use quell_core::mutants::{ALL, VARIABLE, choose};
use quell_sim::{Problem, real, run};

/// As many schedules may be needed to catch what the page says is caught by the simulator.
const SCHEDULES: u64 = 2_000;

/// Of so many the page says how many find it.
const COUNTED: u64 = 300;

/// A bug may make a promise wait for what never comes; looked at every twentieth of a second, so ten minutes.
const LOOKS: u32 = 12_000;

const HELP: &str =
    "QUELL_WRITE_REFERENCE=1 cargo test -p quell-sim-mutants writes docs/design/mutants.md anew";

#[test]
fn every_mutant_is_caught_as_the_page_says() {
    if std::env::var_os("QUELL_WRITE_REFERENCE").is_some() {
        return write_page();
    }
    let page = Page::read();
    let names: Vec<&str> = page.rows.iter().map(|row| row.name.as_str()).collect();
    let wanted: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, wanted, "the page has other rows than there are bugs: {HELP}");
    let survivors = over_all(|name, what| {
        let row = page.rows.iter().find(|row| row.name == name).expect("compared above");
        assert_eq!(row.what, what, "{HELP}");
        missed(name, row)
    });
    let survivors: Vec<String> = survivors.into_iter().flatten().collect();
    assert!(survivors.is_empty(), "not caught:\n{}\n{HELP}", survivors.join("\n"));
}

/// What a row promises and is not so.
fn missed(name: &'static str, row: &Row) -> Option<String> {
    if row.by.is_empty() && row.promise.is_none() {
        return Some(format!("{name}: by nothing at all, says the page"));
    }
    let caught = (!row.by.is_empty()).then(|| first_catch(name));
    match caught {
        Some(None) => return Some(format!("{name}: by no schedule of {SCHEDULES}")),
        Some(Some(catch)) if !row.by.contains(&catch.by) => {
            return Some(format!(
                "{name}: seed {} catches it as {}, not as {:?}",
                catch.seed, catch.by, row.by
            ));
        }
        _ => {}
    }
    let promise = row.promise.as_deref()?;
    let kept = broken(name, &["--exact", &format!("memory::{promise}")]).is_empty();
    kept.then(|| format!("{name}: the promise {promise} is kept"))
}

/// A schedule that found something.
struct Catch {
    by: String,
    seed: u64,
    /// So many records its history has.
    records: usize,
}

/// What the schedule of a seed finds, that nothing is to be found in without the bug.
fn catch(name: &'static str, seed: u64) -> Option<Catch> {
    choose(name);
    let result = run(seed, &real);
    choose("");
    let failure = result.err()?;
    let by = match &failure.problem {
        Problem::Broken(violation) => format!("{:?}", violation.invariant),
        Problem::Equation(_) => "the store's own equation".to_owned(),
        Problem::Stuck(_) => "what is left undone".to_owned(),
        Problem::Panic(_) => "an assertion".to_owned(),
    };
    run(seed, &real).is_ok().then_some(Catch { by, seed, records: failure.history.len() })
}

fn first_catch(name: &'static str) -> Option<Catch> {
    (0..SCHEDULES).find_map(|seed| catch(name, seed))
}

/// The promises of the suite that a bug breaks, of those that the arguments choose.
fn broken(name: &str, arguments: &[&str]) -> Vec<String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mutant-{name}.txt"));
    let output = File::create(&place).expect("the folder of the build can be written");
    let mut child = Command::new(std::env::current_exe().expect("a test knows its own file"))
        .args(arguments)
        .env(VARIABLE, name)
        .env_remove("QUELL_WRITE_REFERENCE")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .expect("a test can start itself");
    let (_silent, bell) = mpsc::channel::<()>();
    let mut ended = None;
    for _ in 0..LOOKS {
        ended = child.try_wait().expect("a child of ours can be asked");
        if ended.is_some() {
            break;
        }
        let _ = bell.recv_timeout(Duration::from_millis(50));
    }
    if ended.is_none() {
        child.kill().expect("a child of ours can be ended");
        child.wait().expect("a child of ours can be waited for");
        panic!("the suite has not ended with {name}, asked for {arguments:?}");
    }
    let text = fs::read_to_string(&place).expect("it was written above");
    fs::remove_file(&place).expect("it was read above");
    let failed = |line: &str| {
        let promise = line.strip_prefix("test memory::")?.strip_suffix(" ... FAILED")?;
        Some(promise.to_owned())
    };
    text.lines().filter_map(failed).collect()
}

/// Asks something of every bug, on as many threads as the other long tests use.
fn over_all<T: Send>(ask: impl Fn(&'static str, &'static str) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, what)) = ALL.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let answer = ask(name, what);
                    answers.lock().expect("no panic under it").insert(*name, answer);
                }
            });
        }
    });
    let mut answers = answers.into_inner().expect("no panic under it");
    ALL.iter().filter_map(|(name, _)| answers.remove(name)).collect()
}

/// A row of the page.
struct Row {
    name: String,
    what: String,
    /// What the simulator catches it as.
    by: Vec<String>,
    /// The promise of the suite that it breaks.
    promise: Option<String>,
}

struct Page {
    text: String,
    rows: Vec<Row>,
}

const BEGIN: &str = "<!-- mutants: written by the test -->\n";
const END: &str = "<!-- mutants end -->\n";

impl Page {
    fn place() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/design/mutants.md")
    }

    fn read() -> Self {
        let text = fs::read_to_string(Page::place()).expect("the page is there");
        let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).expect(HELP).0;
        let rows = table.lines().filter(|line| line.starts_with("| `")).map(Row::read).collect();
        Page { text, rows }
    }
}

impl Row {
    fn read(line: &str) -> Self {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, what, by, _, promise] = cells[..] else { panic!("five cells: {line}") };
        let by = by.split(", ").map(|word| word.split(" ×").next().unwrap_or_default().to_owned());
        Row {
            name: name.trim_matches('`').to_owned(),
            what: what.to_owned(),
            by: by.filter(|word| word != "–").collect(),
            promise: (promise != "–").then(|| promise.trim_matches('`').to_owned()),
        }
    }
}

fn write_page() {
    let lines = over_all(|name, what| {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for found in (0..COUNTED).filter_map(|seed| catch(name, seed)) {
            *counts.entry(found.by).or_default() += 1;
        }
        let first = first_catch(name);
        if let Some(first) = &first {
            counts.entry(first.by.clone()).or_insert(1);
        }
        let mut by: Vec<(String, u64)> = counts.into_iter().collect();
        by.sort_by_key(|(word, times)| (u64::MAX - times, word.clone()));
        let by: Vec<String> = by.into_iter().map(|(word, times)| format!("{word} ×{times}")).collect();
        let seen = first.map(|first| format!("{} / {}", first.seed, first.records));
        let promises = broken(name, &["memory::"]);
        // Not those that try everything: a promise that names the mistake says more, and breaks every time.
        let wide = ["races::", "histories::", "crash::workers_and_senders"];
        let named = |promise: &&String| !wide.iter().any(|start| promise.starts_with(start));
        let promise = promises.iter().find(named).or(promises.first()).map(|promise| format!("`{promise}`"));
        let or_none = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("–".to_owned());
        let (by, seen, promise) = (or_none(Some(by.join(", "))), or_none(seen), or_none(promise));
        println!("{name}: {by}, {promise}");
        format!("| `{name}` | {what} | {by} | {seen} | {promise} |\n")
    });
    let Page { text, .. } = Page::read();
    let (before, rest) = text.split_once(BEGIN).expect("the page says where the table is");
    let (_, after) = rest.split_once(END).expect("the page says where the table ends");
    let head = "| bug | what it does | the simulator catches it as | seed / records | broken promise of the suite |\n| --- | --- | --- | --- | --- |\n";
    let table: String = lines.concat();
    fs::write(Page::place(), format!("{before}{BEGIN}{head}{table}{END}{after}"))
        .expect("the page can be written");
}

#[test]
fn every_bug_of_the_list_is_made_somewhere_and_no_other() {
    let mut made = BTreeSet::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../quell-core/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the sources are there") {
            let place = entry.expect("the sources can be listed").path();
            if place.is_dir() {
                folders.push(place);
                continue;
            }
            let text = fs::read_to_string(&place).expect("sources are text");
            let names = text.split("mutant(\"").skip(1).filter_map(|rest| rest.split('"').next());
            made.extend(names.map(str::to_owned));
        }
    }
    let listed: BTreeSet<String> = ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(made, listed);
    assert_eq!(listed.len(), ALL.len(), "each name is given once");
    assert!(ALL.len() >= 40, "as many as are promised");
}
