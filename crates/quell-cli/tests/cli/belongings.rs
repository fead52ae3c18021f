//! What applications keep goes along with `quell store copy`: conversations, prices and transcripts.

use std::sync::Arc;
use std::time::Duration;

use quell::config::{Origin, StoreChoice, StoreUrl};
use quell::copy::{Application, Table};
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell::quell_core::store::Store;
use quell::quell_core::tables::{Cell, Statement};
use quell_chat::book::{self, About, Conversation, Entry, Place, Role, Voice, Wanted};
use quell_chat::message::{Channel, key};
use quell_transcripts::archive::Archive;
use serde_json::Value;

use crate::support::{Folder, Process, until};

/// Of each table that is filled without its application: more than two pages of a copy.
const ROWS: i64 = 150;

fn own(url: String, what: &str, name: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{what}=belongings{}_{name}", std::process::id())
}

fn postgres(name: &str) -> String {
    own(quell_test_servers::postgres_url(), "pool=4&schema", name)
}

fn redis(name: &str) -> String {
    own(quell_test_servers::redis_url(), "prefix", name)
}

/// Does something with the open store.
fn with<T>(url: &str, work: impl AsyncFnOnce(Arc<dyn Store>) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let choice = StoreChoice { url: StoreUrl::parse(url).unwrap(), origin: Origin::Default };
        let store = quell::open::open(&choice, Duration::from_secs(20)).await.expect("the store opens");
        work(store).await
    })
}

fn file(folder: &Folder, name: &str) -> String {
    format!("sqlite:{}", folder.path(name).display())
}

fn talk(customer: &str, at: i64) -> Conversation {
    let place = Place { tenant: Tenant::new("acme").unwrap(), key: key(Channel::Wati, customer, None) };
    Conversation::begun(&place, Timestamp::from_millis(at)).unwrap()
}

fn entry(n: i64) -> Entry {
    let text = format!("text {n} ünï '\"\\ 🪙");
    let at = Timestamp::from_millis(n);
    Entry { id: format!("e{n}"), at, role: Role::Customer, text, about: About::default() }
}

/// A hundred short conversations and a long one, in which a person answers.
fn fill_chat(url: &str) {
    with(url, async |store| {
        let book = book::open(store).await.unwrap();
        for n in 0..100 {
            book.record(&talk(&format!("c{n}"), n), &[entry(n)]).await.unwrap();
        }
        let long: Vec<Entry> = (0..200).map(entry).collect();
        book.record(&talk("long", 500), &long).await.unwrap();
        let handed = Conversation { state: Voice::Human, reason: Some("asked".into()), ..talk("long", 500) };
        book.hand(&handed, &Entry { role: Role::Note, ..entry(999) }).await.unwrap();
    });
}

/// Fills the tables of an application straight in the file, by the types of their columns. What may be missing sometimes is.
fn fill(folder: &Folder, tables: &[Table]) {
    let mut file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    let change = file.transaction().unwrap();
    for table in tables {
        let sql = format!("SELECT name, type, \"notnull\" FROM pragma_table_info('{}')", table.name);
        let columns: Vec<(String, bool, bool)> = change
            .prepare(&sql)
            .unwrap()
            .query_map([], |row| {
                let kind: String = row.get(1)?;
                Ok((row.get(0)?, kind != "TEXT" && kind != "text", row.get(2)?))
            })
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let names: Vec<&str> = columns.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, table.columns, "{} has other columns than a copy takes along", table.name);
        let places: Vec<String> = (1..=names.len()).map(|n| format!("?{n}")).collect();
        let sql = format!("INSERT INTO {} ({}) VALUES ({})", table.name, names.join(", "), places.join(", "));
        let mut insert = change.prepare(&sql).unwrap();
        for n in 1..=ROWS {
            let value = |(name, is_number, needed): &(String, bool, bool)| -> rusqlite::types::Value {
                match (is_number, *needed || name == "n" || n % 3 > 0) {
                    (_, false) => rusqlite::types::Value::Null,
                    (true, true) => n.into(),
                    (false, true) => format!("{name} {n} ünï '\"\\").into(),
                }
            };
            insert.execute(rusqlite::params_from_iter(columns.iter().map(value))).unwrap();
        }
    }
    change.commit().unwrap();
}

fn fill_prices(folder: &Folder) {
    with(&file(folder, "quell.db"), async |store| {
        quell_collectors::book::Book::open(store).await.unwrap();
    });
    fill(folder, quell_collectors::book::Belongs.tables());
}

fn fill_transcripts(folder: &Folder) {
    with(&file(folder, "quell.db"), async |store| {
        Archive::open(store).await.unwrap();
    });
    fill(folder, quell_transcripts::copy::Belongs.tables());
}

fn rows(copied: &Value, table: &str) -> u64 {
    let all = copied["tables"].as_array().expect("tables are listed");
    all.iter().find(|one| one["table"] == table).map_or(0, |one| one["rows"].as_u64().unwrap())
}

#[test]
fn conversations_prices_and_transcripts_move_to_postgresql_and_back() {
    let folder = Folder::new();
    folder.send("jobs", "a", "1");
    fill_chat(&file(&folder, "quell.db"));
    fill_prices(&folder);
    fill_transcripts(&folder);
    let url = postgres("moved");
    let there = folder.json(&["store", "copy", "quell.db", &url]);
    assert_eq!((rows(&there, "chat_conversation"), rows(&there, "chat_entry")), (101, 301), "{there}");
    assert_eq!(rows(&there, "prices_observation"), ROWS as u64);
    assert_eq!(there["tables"].as_array().unwrap().len(), 15);
    with(&url, async |store| {
        let book = book::open(store.clone()).await.unwrap();
        let wanted = Wanted { state: Some(Voice::Human), limit: 10, ..Wanted::default() };
        assert_eq!(book.list(&wanted).await.unwrap()[0].customer, "long");
        // A message that is read later gets a later number.
        let new = "INSERT INTO quell.transcripts_message
            (uuid, session_id, role, is_prompt, sidechain, meta, text, thinking, tools, results, failures)
            VALUES ($1, 's', 'user', 0, 0, 0, 'later', '', '', 0, 0)";
        let tables = store.tables().unwrap();
        tables.write(vec![Statement::new(new, ["new".into()]).changing(1)]).await.unwrap();
        let sql = "SELECT n FROM quell.transcripts_message WHERE uuid = $1";
        let found = tables.read(Statement::new(sql, ["new".into()])).await.unwrap();
        assert_eq!(found[0].0, [Cell::Int(ROWS + 1)]);
        tables
            .write(vec![Statement::new(
                "DELETE FROM quell.transcripts_message WHERE uuid = $1",
                ["new".into()],
            )])
            .await
            .unwrap();
    });
    let back = folder.json(&["store", "copy", &url, "back.db"]);
    assert_eq!(back["tables"], there["tables"], "the same rows, and so the same digests");
    // The index of words was made anew.
    let found = rusqlite::Connection::open(folder.path("back.db")).unwrap().query_row(
        "SELECT count(*) FROM transcripts_search WHERE transcripts_search MATCH 'thinking'",
        [],
        |row| row.get::<_, i64>(0),
    );
    assert_eq!(found.unwrap(), ROWS);
    // Whoever still has the old store can read it and change nothing in it.
    with(&url, async |store| {
        let book = book::open(store).await.unwrap();
        assert!(book.conversation(&talk("c1", 1).place()).await.unwrap().is_some());
        let refused = book.record(&talk("c1", 1), &[entry(7)]).await.unwrap_err();
        assert!(refused.to_string().contains("sealed"), "{refused}");
    });
}

#[test]
fn conversations_move_to_redis_and_back_and_what_needs_tables_does_not() {
    let folder = Folder::new();
    folder.send("jobs", "a", "1");
    fill_chat(&file(&folder, "quell.db"));
    let url = redis("chat");
    let there = folder.json(&["store", "copy", "quell.db", &url]);
    assert_eq!((rows(&there, "chat_conversation"), rows(&there, "chat_entry")), (101, 301), "{there}");
    with(&url, async |store| {
        let book = book::open(store).await.unwrap();
        let long = talk("long", 500);
        let known = book.conversation(&long.place()).await.unwrap().unwrap();
        assert_eq!((known.state, known.reason.as_deref()), (Voice::Human, Some("asked")));
        let last = book.entries(&long.place(), 2).await.unwrap();
        assert_eq!(last.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["e199", "e999"]);
        // What was written before is known, what comes is put behind it.
        book.record(&long, &[entry(5), entry(1000)]).await.unwrap();
        let last = book.entries(&long.place(), 2).await.unwrap();
        assert_eq!(last.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["e999", "e1000"]);
    });
    let back = folder.json(&["store", "copy", &url, "back.db"]);
    assert_eq!((rows(&back, "chat_conversation"), rows(&back, "chat_entry")), (101, 302), "{back}");
    let once_more = folder.json(&["store", "copy", "back.db", &redis("again")]);
    assert_eq!(once_more["tables"], back["tables"], "the same rows, and so the same digests");

    let other = Folder::new();
    other.send("jobs", "a", "1");
    fill_prices(&other);
    other
        .quell(&["store", "copy", "quell.db", &redis("prices")])
        .exits(4)
        .complains("prices keeps rows in prices_intake, and the target has no place for them");
    other.send("jobs", "a", "2");
}

#[test]
fn a_copy_that_is_killed_among_the_rows_of_an_application_goes_on_there() {
    let folder = Folder::new();
    folder.send("jobs", "a", "1");
    fill_transcripts(&folder);
    // So many lines that a page is noticed.
    let file = rusqlite::Connection::open(folder.path("quell.db")).unwrap();
    file.execute_batch(
        "WITH RECURSIVE more(n) AS (SELECT 1000 UNION ALL SELECT n + 1 FROM more WHERE n < 21000)
         INSERT INTO transcripts_raw (path, at_byte, session_id, line) SELECT 'p', n, 's', 'line ' || n FROM more",
    )
    .unwrap();
    drop(file);
    let place = || {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let file = rusqlite::Connection::open_with_flags(folder.path("new.db"), flags).ok()?;
        let sql = "SELECT json_extract(copy_place, '$.applications.after[1]') FROM meta";
        file.query_row(sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    };
    let mut reached = 0;
    for _ in 0..2 {
        let copying = Process::start(folder.command(&["store", "copy", "quell.db", "new.db"]));
        until("a place among the lines", || place().is_some_and(|at| at > reached.max(1_000)));
        copying.signal(rustix::process::Signal::KILL);
        assert!(!copying.end().0.success(), "it was killed before it was done");
        let at = place().expect("the place is kept");
        assert!(at >= reached, "it went on at {at} and not before {reached}");
        reached = at;
    }
    let done = folder.json(&["store", "copy", "quell.db", "new.db"]);
    assert_eq!((&done["resumed"], rows(&done, "transcripts_raw")), (&true.into(), 20_151), "{done}");
}
