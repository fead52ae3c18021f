//! Shell command lines, as far as it takes to find our own in somebody's settings and to write one.
//!
//! This is no shell. It splits words the way a POSIX shell does (quotes, backslashes) and sees where one command ends and
//! the next begins; expansions stay as they are written. It is only used by the installer, never by the hook.

/// One simple command: its words, without redirections.
pub(crate) type Command = Vec<String>;

/// The simple commands of a line, or nothing for one that no shell would take (an open quote).
pub(crate) fn commands(line: &str) -> Option<Vec<Command>> {
    let mut commands = vec![Command::new()];
    let mut word: Option<String> = None;
    // The next word is the target of a redirection.
    let mut target = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '\'' => break,
                        letter => word.push(letter),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        '"' => break,
                        '\\' => match letters.next()? {
                            special @ ('"' | '\\' | '$' | '`') => word.push(special),
                            '\n' => {}
                            other => word.extend(['\\', other]),
                        },
                        letter => word.push(letter),
                    }
                }
            }
            '\\' => match letters.next()? {
                '\n' => {}
                other => word.get_or_insert_default().push(other),
            },
            ' ' | '\t' => end_word(&mut commands, &mut word, &mut target),
            '>' | '<' => {
                // `2>`: the number belongs to it.
                if word.as_deref().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
                    word = None;
                }
                end_word(&mut commands, &mut word, &mut target);
                while letters.next_if(|next| matches!(next, '>' | '<' | '&')).is_some() {}
                target = true;
            }
            '&' if letters.next_if_eq(&'>').is_some() => {
                end_word(&mut commands, &mut word, &mut target);
                target = true;
            }
            ';' | '&' | '|' | '\n' | '(' | ')' => {
                end_word(&mut commands, &mut word, &mut target);
                commands.push(Command::new());
            }
            '#' if word.is_none() => while letters.next_if(|next| *next != '\n').is_some() {},
            letter => word.get_or_insert_default().push(letter),
        }
    }
    end_word(&mut commands, &mut word, &mut target);
    commands.retain(|command| !command.is_empty());
    Some(commands)
}

fn end_word(commands: &mut [Command], word: &mut Option<String>, target: &mut bool) {
    if let (Some(word), Some(command)) = (word.take(), commands.last_mut()) {
        if *target {
            *target = false;
        } else {
            command.push(word);
        }
    }
}

/// A word as a shell reads it back.
pub fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A command line of these words.
pub fn command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// What a command line has to do with `quell hook`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ours {
    No,
    /// It is that and nothing else.
    Yes,
    /// It is one of several commands of somebody's own line, which is not ours to rewrite.
    Among,
}

pub(crate) fn is_ours(line: &str) -> Ours {
    let Some(commands) = commands(line) else { return Ours::No };
    if !commands.iter().any(|command| is_hook(command)) {
        return if commands.iter().any(|command| is_wrapped(command)) { Ours::Among } else { Ours::No };
    }
    // `|| true` is what careful people write behind it.
    let idle = |command: &Command| matches!(command[0].as_str(), "true" | ":" | "exit");
    let whole = commands.iter().all(|command| is_hook(command) || idle(command));
    if whole && commands.iter().filter(|command| is_hook(command)).count() == 1 {
        Ours::Yes
    } else {
        Ours::Among
    }
}

/// Somebody calls us through another program.
fn is_wrapped(words: &[String]) -> bool {
    let Some((program, words)) = words.split_first() else { return false };
    match program.rsplit('/').next().unwrap_or(program) {
        // `sh -c '…'`, once: what is in it holds no further shell.
        "sh" | "bash" | "dash" | "zsh" => words
            .iter()
            .any(|word| commands(word).is_some_and(|inner| inner.iter().any(|command| is_hook(command)))),
        "nice" | "ionice" | "chrt" | "timeout" | "time" | "setsid" | "sudo" | "flock" | "chronic" => {
            (0..words.len()).any(|at| is_hook(&words[at..]))
        }
        _ => false,
    }
}

/// `quell hook`, with flags before, between and behind, and however the program is written.
pub(crate) fn is_hook(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str).skip_while(|word| {
        let assigned = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        assigned || matches!(*word, "exec" | "env" | "command" | "nohup")
    });
    let Some(program) = words.next() else { return false };
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    if name != "quell" && !name.eq_ignore_ascii_case("quell.exe") {
        return false;
    }
    let words: Vec<&str> = words.collect();
    let mut at = 0;
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-')) {
        at += 1;
        // The flags before a command all have a value, which `=` or a space separates.
        if !word.contains('=') && words.get(at).is_some_and(|next| *next != "hook" && !next.starts_with('-'))
        {
            at += 1;
        }
    }
    // The commands about the hook are not the hook.
    words.get(at) == Some(&"hook")
        && !matches!(words.get(at + 1), Some(&("install" | "uninstall" | "status" | "help")))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_split_as_a_shell_does() {
        for (line, split) in [
            ("a b", vec![vec!["a", "b"]]),
            ("  a\t'b c'\"d e\"f  ", vec![vec!["a", "b cd ef"]]),
            (r#"a\ b "c\"d\e" '' "#, vec![vec!["a b", "c\"d\\e", ""]]),
            ("a;b && c||d | e & f", vec![vec!["a"], vec!["b"], vec!["c"], vec!["d"], vec!["e"], vec!["f"]]),
            ("a >/dev/null 2>&1 b", vec![vec!["a", "b"]]),
            ("a 2> 'x y' &>z <in b # c d", vec![vec!["a", "b"]]),
            ("a\n(b)", vec![vec!["a"], vec!["b"]]),
            ("", vec![]),
        ] {
            assert_eq!(commands(line).unwrap(), split, "{line}");
        }
        for open in ["'a", "a \"b", "a\\"] {
            assert_eq!(commands(open), None, "{open}");
        }
    }

    #[test]
    fn ours_is_recognised_however_it_is_written() {
        for line in [
            "quell hook",
            "/usr/local/bin/quell hook",
            "'/home/me/my tools/quell' hook",
            "\"/home/me/my tools/quell\" hook --store x.db",
            "/home/me/my\\ tools/quell hook",
            "quell --store sqlite:x.db hook",
            "quell --store=sqlite:x.db --log debug hook --print-continue",
            "quell hook --store 'a b'",
            "quell -v hook",
            "QUELL_STORE='a b' quell hook",
            "env A=b quell hook",
            "exec quell hook",
            "quell hook || true",
            "quell hook >/dev/null 2>&1 || exit 0",
            "\"C:\\Program Files\\Quell.exe\" hook",
        ] {
            assert_eq!(is_ours(line), Ours::Yes, "{line}");
        }
        for line in [
            "",
            "quell",
            "quell work",
            "quell hook install",
            "quell events hook",
            "quellx hook",
            "my-quell hook",
            "echo quell hook",
            "quell/other hook",
            "'quell hook",
            "notify 'quell hook'",
            "bash -c 'echo quell hook'",
            "timeout 5 quell work",
            "true # quell hook",
        ] {
            assert_eq!(is_ours(line), Ours::No, "{line}");
        }
        for line in [
            "notify me; quell hook",
            "cd /srv && quell hook",
            "tee log | quell hook",
            "quell hook; quell hook",
        ] {
            assert_eq!(is_ours(line), Ours::Among, "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(words in prop::collection::vec("\\PC{0,12}", 1..5)) {
            let line = command_line(words.iter().map(String::as_str));
            prop_assert_eq!(commands(&line).unwrap(), vec![words]);
        }

        #[test]
        fn a_program_anywhere_is_recognised(folder in "/[a-z '\"\\\\$&;#ä]{0,12}") {
            let program = format!("{folder}/quell");
            let line = command_line([program.as_str(), "--store", "a b", "hook"]);
            prop_assert_eq!(is_ours(&line), Ours::Yes);
        }
    }
}
