//! The program `quell-bench-verbs` under strace: how often each verb waits for the disk.
//!
//! What the program says goes by in the same record, so it tells where a verb begins and ends.

use std::path::Path;
use std::process::Command;

use quell_bench::verbs::Verb;
use quell_test_servers::strace;

/// Flushes per unit, one for each verb in their order.
pub(crate) fn count(url: &str, folder: &Path) -> Vec<f64> {
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

fn read(record: &str) -> Vec<f64> {
    let (mut counted, mut flushes) = (Vec::new(), 0.0);
    for line in record.lines() {
        // A number of a thread, then the call; one that was interrupted by another comes again as `<... call resumed>`.
        let Some((_, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(said) = call.strip_prefix("write(1, \"") {
            let said = said.replace("\\t", "\t");
            match crate::units(std::iter::once(said.as_str())).first() {
                Some(&units) => counted.push(flushes / units as f64),
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
                  7 write(1, \"2\\tappend\\n\", 9) = 9\n";
    assert_eq!(read(record), [0.5]);
}
