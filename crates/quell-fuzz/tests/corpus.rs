//! The kept inputs, and a fixed number of changed ones, break no promise of any parser.

use quell_fuzz::search::{Until, search, try_one};
use quell_fuzz::{TARGETS, Target, corpus};

/// A second or so for each target on a slow machine; `cargo xtask fuzz` tries more.
const INPUTS: u64 = 4_000;

fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let inputs = corpus::read(target.name).expect("every target has a corpus");
    inputs.into_iter().map(|(_, input)| input).collect()
}

#[test]
fn no_kept_or_changed_input_breaks_a_promise() {
    for target in TARGETS {
        let kept = inputs(target);
        assert!(kept.len() >= 3, "{} has hardly anything to begin with", target.name);
        match search(target, &kept, 1, Until::Inputs(INPUTS)) {
            Ok(report) => {
                println!("{}: {} inputs, {} ways", target.name, report.inputs, report.ways);
                assert!(report.ways > kept.len() / 4, "{}: all inputs go the same way", target.name);
            }
            Err(found) => {
                let input = String::from_utf8_lossy(&found.input).into_owned();
                panic!("{}: {} for {input:?} ({:?})", target.name, found.problem, found.input);
            }
        }
    }
}

#[test]
fn every_folder_of_the_corpus_belongs_to_a_target() {
    let all = corpus::folder("");
    let mut folders: Vec<String> = std::fs::read_dir(all)
        .expect("the corpus is there")
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    folders.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert_eq!(folders, names);
}

/// The tester is tested: a parser that breaks at one word is found out from inputs without it, and the find is small.
#[test]
fn a_parser_that_breaks_is_found_out_and_the_find_is_small() {
    fn read(input: &[u8]) -> String {
        let text = String::from_utf8_lossy(input);
        assert!(!text.contains("{]"), "a promise");
        // The way tells how far it got, as a parser's answer does.
        format!("{} {}", text.matches('{').count().min(3), text.matches(']').count().min(3))
    }
    let target = Target { name: "breaks", words: &["{", "]", "word"], read };
    let found =
        search(&target, &[b"a harmless line".to_vec()], 1, Until::Inputs(200_000)).expect_err("it is found");
    assert_eq!(found.problem, "a promise");
    assert_eq!(found.input, b"{]");
    assert!(try_one(&target, b"{ ]").is_ok());
}
