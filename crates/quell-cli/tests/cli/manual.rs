//! What a package installs beside the binary: manual pages and completions, with every command in them.

use std::process::{Command, Stdio};

use crate::support::{Answer, Folder};

/// The commands that `quell help` lists below a command, as words: `["send"]`, `["store", "copy"]`.
fn commands(folder: &Folder, above: &[&str]) -> Vec<Vec<String>> {
    let mut ask = vec!["help"];
    ask.extend(above);
    let help = folder.quell(&ask).ok().out;
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let mut found = Vec::new();
    for line in rest.lines().take_while(|line| !line.is_empty()) {
        // A text that did not fit goes on further to the right.
        let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) else { continue };
        let name = name.split_whitespace().next().unwrap();
        if name == "help" {
            continue;
        }
        let words: Vec<&str> = above.iter().copied().chain([name]).collect();
        found.push(words.iter().map(|word| (*word).to_owned()).collect());
        found.extend(commands(folder, &words));
    }
    found
}

/// A program that is there; most machines have only some of the shells.
fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

#[test]
fn every_command_has_a_manual_page_that_troff_understands() {
    let folder = Folder::new();
    let all = commands(&folder, &[]);
    assert!(all.len() > 60, "{all:?}");
    let wanted = format!("wrote {} pages into man1", all.len() + 1);
    folder.quell(&["man", "man1"]).ok().says(&wanted);
    for words in all {
        let name = format!("quell-{}", words.join("-"));
        let page = folder.read(&format!("man1/{name}.1"));
        for part in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
            assert!(page.contains(part), "{name}.1 has no {part}:\n{page}");
        }
    }
    let send = folder.read("man1/quell-send.1");
    assert!(send.contains("stored line\\-2 as 5") && send.contains(".nf"), "the notes are in it:\n{send}");
    let root = folder.quell(&["man"]).ok().says(".SH \"EXIT STATUS\"").says("not found").out;
    assert_eq!(root, folder.read("man1/quell.1"));
    assert!(!root.contains("demo\\-worker"), "what is hidden has no page");
    if installed("groff") {
        for entry in std::fs::read_dir(folder.path("man1")).unwrap() {
            let mut groff = Command::new("groff");
            groff.args(["-man", "-Tutf8", "-Kutf8", "-ww", "-z"]).arg(entry.unwrap().path());
            let answer = Answer::of(&mut groff).ok();
            assert_eq!(answer.err, "", "{}", answer.args);
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    folder.write("file", "");
    folder.quell(&["man", "file"]).exits(1).complains("cannot write pages into file");
}

#[test]
fn completions_know_every_command_and_are_understood_by_their_shells() {
    let folder = Folder::new();
    let all = commands(&folder, &[]);
    for (shell, parse) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let script = folder.quell(&["completions", shell]).ok().out;
        for words in &all {
            let name = words.last().unwrap();
            assert!(script.contains(name.as_str()), "{shell} does not complete {words:?}");
        }
        for option in ["only-if-idle", "as-new", "log-format"] {
            assert!(script.contains(option), "{shell} does not complete --{option}");
        }
        folder.write(shell, &script);
        if installed(shell) {
            let answer = Answer::of(Command::new(shell).arg(parse).arg(folder.path(shell))).ok();
            assert_eq!(answer.err, "", "{shell}");
        }
    }
    // What Bash would offer after `quell sto` and after `quell store `.
    let offered = |words: &str, current: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words} {current}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _quell quell {current} store; echo \"${{COMPREPLY[@]}}\"",
            folder.path("bash").display()
        );
        Answer::of(Command::new("bash").args(["-c", &ask])).ok().out
    };
    assert_eq!(offered("quell", "sto").trim(), "store");
    assert!(offered("quell store", "''").contains("copy"), "{}", offered("quell store", "''"));
    folder.quell(&["completions", "tcsh"]).exits(2);
}
