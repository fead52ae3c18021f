//! The program `quell-bench-verbs` under callgrind: how many instructions each verb takes.
//!
//! Callgrind ends a part of its record at each mark of the program, so the second part is the first verb, the fourth the second
//! one, and so on. Of each part its sum is read, which does not depend on how fast or how busy the machine is.

use std::path::Path;
use std::process::Command;

use quell_bench::verbs::Verb;
use quell_test_servers::valgrind;

/// Instructions per unit, for each verb of a single caller in their order.
pub(crate) fn count(folder: &Path) -> Vec<(Verb, f64)> {
    let record = folder.join("callgrind.out");
    let ran = Command::new(valgrind().unwrap())
        .args(["--tool=callgrind", "--dump-before=quell_bench_verbs::mark"])
        .arg(format!("--callgrind-out-file={}", record.display()))
        .arg(env!("CARGO_BIN_EXE_quell-bench-verbs"))
        .arg("memory")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let units = crate::units(said.lines());
    let verbs: Vec<Verb> = Verb::ALL.into_iter().filter(|verb| !verb.is_concurrent()).collect();
    assert_eq!(units.len(), verbs.len(), "{said}");
    let counted = verbs.into_iter().zip(units).enumerate().map(|(index, (verb, units))| {
        let part = folder.join(format!("callgrind.out.{}", 2 + 2 * index));
        let text = String::from_utf8_lossy(&std::fs::read(&part).unwrap()).into_owned();
        assert!(text.contains("Trigger: --dump-before=quell_bench_verbs::mark"), "{}", part.display());
        (verb, sum(&text) as f64 / units as f64)
    });
    counted.collect()
}

fn sum(part: &str) -> u64 {
    let line = part.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    line.expect("a part has a sum").trim().parse().unwrap()
}

#[test]
fn the_sum_of_a_part_is_found() {
    assert_eq!(sum("events: Ir\nfn=(1) main\n10 5\ntotals: 20\n"), 20);
    assert_eq!(sum("events: Ir\nsummary: 700904\nfn=(1) main\n"), 700_904);
}
