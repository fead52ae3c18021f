//! The program `quell-bench-verbs` under strace: how often each verb waits for the disk, beside the statements and transactions
//! that the program itself has counted.
//!
//! What the program says goes by in the same record, so it tells where a verb begins and ends.

use std::path::Path;
use std::process::Command;

use quell_bench::verbs::Verb;
use quell_test_servers::strace;

use crate::figures::Costs;

/// Per unit, for each verb in their order.
pub(crate) fn count(url: &str, folder: &Path) -> Vec<Costs> {
    let record = folder.join("strace.out");
    let ran = Command::new(strace().unwrap())
        .args(["-f", "-s", "200", "-e", "trace=fsync,fdatasync,write", "-o"])
        .arg(&record)
        .arg(env!("CARGO_BIN_EXE_quell-bench-verbs"))
        .arg(url)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let counted = read(&String::from_utf8_lossy(&std::fs::read(&record).unwrap()));
    assert_eq!(counted.len(), Verb::ALL.len(), "{counted:?}");
    counted
}

fn read(record: &str) -> Vec<Costs> {
    let (mut counted, mut flushes) = (Vec::new(), 0.0);
    for line in record.lines() {
        // A number of a thread, then the call; one that was interrupted by another comes again as `<... call resumed>`.
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(said) = call.strip_prefix("write(1, \"") {
            let said = said.replace("\\t", "\t");
            match crate::units(std::iter::once(said.as_str())).first() {
                Some(&units) => {
                    let each = |what: &str, many: f64| (what.to_owned(), many / units as f64);
                    let told = |place| said.split(['\t', '\\']).nth(place).unwrap().parse::<f64>().unwrap();
                    counted.push(Costs::from([
                        each("flushes", flushes),
                        each("statements", told(2)),
                        each("transactions", told(3)),
                    ]));
                }
                None => flushes = 0.0,
            }
        } else if call.starts_with("fdatasync(") || call.starts_with("fsync(") {
            flushes += 1.0;
        }
    }
    counted
}

#[test]
fn flushes_between_what_is_said_are_counted() {
    let record = "7 fdatasync(3) = 0\n\
                  7 write(1, \"begins\\tappend\\n\", 14) = 14\n\
                  8 fdatasync(3 <unfinished ...>\n7 write(4, \"1\", 1) = 1\n\
                  8 <... fdatasync resumed>) = 0\n\
                  7 write(1, \"2\\tappend\\t8\\t1\\n\", 9) = 9\n";
    let costs = [("flushes", 0.5), ("statements", 4.0), ("transactions", 0.5)];
    assert_eq!(read(record), [Costs::from(costs.map(|(what, each)| (what.to_owned(), each)))]);
}
