//! A store that cannot be trusted is refused with the reason, and nothing is guessed or replaced.

use crate::support::{Answer, Folder};

const COMMANDS: [&[&str]; 4] =
    [&["send", "chat", "a", "1"], &["work", "--until-idle"], &["lanes"], &["doctor"]];

fn refused(folder: &Folder, args: &[&str]) -> Answer {
    let output = folder.command(args).env("QUELL_WORKER_START_TIMEOUT", "100ms").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer {
        args: args.join(" "),
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    }
    .exits(5)
}

#[test]
fn a_store_that_does_not_exist_is_not_made_by_looking() {
    let folder = Folder::new();
    for args in
        [["lanes"].as_slice(), &["lane", "a", "b"], &["runs"], &["audit"], &["doctor"], &["pause", "a"]]
    {
        folder.quell(args).exits(5).complains("there is no store at sqlite:./quell.db (from default)");
    }
    assert!(!folder.path("quell.db").exists());
    refused(&folder, &["send", "a", "b", "1", "--store", "sqlite:no/such/folder.db"])
        .complains("does not exist");
    refused(&folder, &["serve", "--store", "sqlite:no/such/folder.db"]).complains("(from --store)");
}

#[test]
fn a_file_of_another_program_is_left_alone() {
    let folder = Folder::new();
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(file);
    let before = std::fs::read(folder.path("quell.db")).unwrap();
    for args in COMMANDS {
        refused(&folder, args).complains("belongs to another program");
    }
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    let tables: i64 = file.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!((tables, before.len()), (1, std::fs::read(folder.path("quell.db")).unwrap().len()));
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let folder = Folder::new();
    folder.write("quell.db", &"this is a letter to my aunt. ".repeat(200));
    let before = folder.read("quell.db");
    for args in COMMANDS {
        refused(&folder, args).complains("not an SQLite database");
    }
    assert_eq!(folder.read("quell.db"), before);
}

#[test]
fn a_newer_schema_is_refused() {
    let folder = Folder::new();
    folder.send("chat", "a", "1");
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute_batch("PRAGMA user_version = 99").unwrap();
    drop(file);
    for args in COMMANDS {
        refused(&folder, args).complains("schema 99").complains("start a newer Quell");
    }
}

#[test]
fn a_damaged_file_is_found_and_named() {
    let folder = Folder::with_config("[queues.chat]\nwindow = { quiet = \"1h\" }\n");
    let input: String = (0..500).map(|n| format!("{{\"key\":\"k{n}\",\"payload\":{n}}}\n")).collect();
    folder.quell_with(&["send", "chat", "--bulk", "-"], &input).ok();
    let mut bytes = std::fs::read(folder.path("quell.db")).unwrap();
    // The first page stays, so that the file still says whose it is; all others are noise.
    bytes[4096..].iter_mut().enumerate().for_each(|(n, byte)| *byte = u8::try_from(n % 251).unwrap());
    std::fs::write(folder.path("quell.db"), bytes).unwrap();
    for args in [["send", "chat", "a", "1"].as_slice(), &["lanes"], &["doctor"]] {
        refused(&folder, args).complains("damaged");
    }
}

#[test]
fn stores_that_are_no_stores_are_a_mistake_in_the_configuration() {
    let folder = Folder::new();
    folder.quell(&["send", "a", "b", "1", "--store", "sqlite::memory:"]).exits(2).complains("name a file");
    for url in ["postgres://me:secret@127.0.0.1:1/x", "redis://:secret@127.0.0.1:1"] {
        let answer = folder.quell(&["lanes", "--store", url]).exits(5).complains("127.0.0.1:1");
        assert!(!answer.err.contains("secret"), "{}", answer.err);
    }
    folder.quell(&["send", "a", "b", "1", "--store", "."]).exits(5).complains("is a folder");
}
