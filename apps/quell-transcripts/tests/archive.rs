//! The archive on real databases: what fixtures must give, read twice, searched, forgotten, and by two at once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quell::config::{Origin, StoreChoice, StoreUrl, TranscriptsSettings};
use quell::quell_core::error::ErrorKind;
use quell_transcripts::archive::{Archive, Chunk, Told};
use quell_transcripts::ingest::{Ingest, Read};
use quell_transcripts::lazily::Wishes;
use quell_transcripts::reader::Position;
use quell_transcripts::reading::{Named, Search, Session, SessionFilter};
use quell_transcripts::shape::HookEvent;
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000_000;

/// A database of its own, and a folder for transcripts.
struct World {
    folder: tempfile::TempDir,
    archive: Archive,
}

async fn open(url: &str) -> Archive {
    let choice = StoreChoice { url: StoreUrl::parse(url).unwrap(), origin: Origin::Default };
    let store = quell::open::open(&choice, Duration::from_secs(10)).await.expect("the store opens");
    Archive::open(store).await.expect("the tables are made")
}

impl World {
    async fn sqlite() -> World {
        let folder = tempfile::tempdir().unwrap();
        let archive = open(&format!("sqlite:{}", folder.path().join("q.db").display())).await;
        World { folder, archive }
    }

    async fn postgres() -> World {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let (nth, pid) = (MADE.fetch_add(1, Ordering::SeqCst), std::process::id());
        let url = quell_test_servers::postgres_url();
        let joint = if url.contains('?') { '&' } else { '?' };
        let archive = open(&format!("{url}{joint}schema=transcripts{pid}_{nth}&pool=4")).await;
        World { folder: tempfile::tempdir().unwrap(), archive }
    }

    fn ingest(&self) -> Ingest {
        let wishes = Wishes::new(&TranscriptsSettings::default(), |_| None).unwrap();
        wishes.below(vec![self.folder.path().to_path_buf()]).ingest(self.archive.clone())
    }

    /// A fixture in the folder of this world.
    fn copy(&self, name: &str) -> PathBuf {
        let to = self.folder.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(fixtures().join(name), &to).unwrap();
        to
    }

    async fn session(&self, id: &str) -> Session {
        match self.archive.session(id).await.unwrap() {
            Named::One(session) => *session,
            other => panic!("{id}: {other:?}"),
        }
    }

    async fn search(&self, words: &str) -> Vec<String> {
        let search = Search { words: words.into(), limit: 100, ..Search::default() };
        self.archive.search(&search).await.unwrap().into_iter().map(|hit| hit.uuid).collect()
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts")
}

fn expected() -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(fixtures().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn hook(session: &str, name: &str, more: Value) -> HookEvent {
    let mut event = json!({ "session_id": session, "hook_event_name": name, "cwd": "/srv/example" });
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    HookEvent::read(event.to_string().as_bytes()).unwrap()
}

fn told(id: &str, at: i64, event: HookEvent) -> Told {
    Told { id: id.into(), at, event }
}

/// Every test on both databases.
macro_rules! on_both {
    ($($name:ident)*) => {
        $(mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                super::promises::$name(super::World::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgres() {
                super::promises::$name(super::World::postgres().await).await;
            }
        })*
    };
}

on_both! {
    every_fixture_gives_what_is_expected
    a_second_pass_reads_only_what_is_new
    a_half_written_line_is_left_for_the_next_pass
    a_fork_repeats_lines_and_stores_none_of_them_twice
    hook_events_tell_of_session_prompt_and_status
    an_empty_prompt_is_filled_from_the_latest_message
    titles_follow_their_rank
    words_are_found_whatever_is_typed
    what_is_forgotten_stays_forgotten
    of_two_that_read_at_once_one_stores
    pages_of_sessions_are_whole
}

mod promises {
    use super::*;

    pub(super) async fn every_fixture_gives_what_is_expected(world: World) {
        for (name, wanted) in expected() {
            if name.ends_with("completed.jsonl") || name.contains("subagents") {
                continue; // The same session again, and part of another one.
            }
            let path = world.copy(&name);
            let done = world.ingest().import(&path, NOW).await.unwrap();
            assert_eq!(done.refused, None, "{name}");
            let id = wanted["session_ids"][0].as_str().unwrap();
            let number = |field: &str| wanted[field].as_i64().unwrap();
            let session = world.session(id).await;
            assert_eq!(session.messages, number("messages"), "{name}");
            assert_eq!(session.prompts, number("prompts"), "{name}");
            let used = &wanted["usage_once_per_message_id"];
            let tokens = [
                session.tokens.input,
                session.tokens.output,
                session.tokens.cache_creation,
                session.tokens.cache_read,
            ];
            let fields =
                ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
            assert_eq!(tokens, fields.map(|field| used[field].as_i64().unwrap()), "{name}");
            let passed = &done.passed;
            assert_eq!(passed.malformed, wanted["malformed_lines"].as_u64().unwrap(), "{name}");
            assert_eq!(passed.unknown, wanted["unknown_type_lines"].as_u64().unwrap(), "{name}");
            assert_eq!(passed.bytes, wanted["safe_offset"].as_u64().unwrap(), "{name}");
            let messages = all_messages(&world, id).await;
            let count = |wanted: fn(&quell_transcripts::reading::Message) -> bool| {
                i64::try_from(messages.iter().filter(|message| wanted(message)).count()).unwrap()
            };
            assert_eq!(count(|message| message.sidechain), number("sidechain_messages"), "{name}");
            assert_eq!(count(|message| message.meta), number("meta_messages"), "{name}");
            let tools: usize = messages.iter().map(|message| message.tools.len()).sum();
            assert_eq!(i64::try_from(tools).unwrap(), number("tool_use_blocks"), "{name}");
            let results: i64 = messages.iter().map(|message| message.tool_results).sum();
            assert_eq!(results, number("tool_result_blocks"), "{name}");
            let prompts: Vec<&str> = messages
                .iter()
                .filter(|message| message.is_prompt)
                .map(|message| message.uuid.as_str())
                .collect();
            let wanted: Vec<&str> = wanted["prompt_uuids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|uuid| uuid.as_str().unwrap())
                .collect();
            assert_eq!(prompts[..wanted.len()], wanted, "{name}");
        }
    }

    async fn all_messages(world: &World, id: &str) -> Vec<quell_transcripts::reading::Message> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let page = world.archive.messages(id, after, 300).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = Some(last.n);
            all.extend(page);
        }
    }

    pub(super) async fn a_second_pass_reads_only_what_is_new(world: World) {
        let path = world.copy("large_2mb.jsonl");
        let first = world.ingest().import(&path, NOW).await.unwrap().passed;
        assert_eq!((first.lines, first.bytes), (1_321, 2_104_012));
        let again = world.ingest().import(&path, NOW).await.unwrap().passed;
        assert_eq!((again.lines, again.bytes), (0, 0));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"type\":\"user\",\"uuid\":\"new\",\"message\":{\"role\":\"user\",\"content\":\"one more\"}}\n").unwrap();
        let new = world.ingest().import(&path, NOW).await.unwrap().passed;
        assert_eq!(new.lines, 1);
        assert_eq!(world.session("6513270e-269e-4d37-b2a7-4de452e6b438").await.messages, 1_322);
    }

    pub(super) async fn a_half_written_line_is_left_for_the_next_pass(world: World) {
        let path = world.copy("truncated_last_line.jsonl");
        world.ingest().import(&path, NOW).await.unwrap();
        let id = "66cc59ee-7192-40d7-81b2-bb993cae11a6";
        assert_eq!(world.session(id).await.messages, 3);
        std::fs::write(&path, std::fs::read(fixtures().join("truncated_last_line.completed.jsonl")).unwrap())
            .unwrap();
        let rest = world.ingest().import(&path, NOW).await.unwrap().passed;
        assert_eq!(rest.lines, 1, "only the line that is whole now");
        assert_eq!(world.session(id).await.messages, 4);
    }

    pub(super) async fn a_fork_repeats_lines_and_stores_none_of_them_twice(world: World) {
        let path = world.copy("simple.jsonl");
        world.ingest().import(&path, NOW).await.unwrap();
        let forked = world.folder.path().join("fork.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&forked, text.replace("db5b5fab-8f4d-4e27-9da1-494c73cf256d", "fork")).unwrap();
        world.ingest().import(&forked, NOW).await.unwrap();
        assert_eq!(world.session("db5b5fab").await.messages, 4);
        assert_eq!(world.session("fork").await.messages, 0);
    }

    pub(super) async fn hook_events_tell_of_session_prompt_and_status(world: World) {
        let archive = &world.archive;
        let start = told("e1", 1_000, hook("s", "SessionStart", json!({ "source": "startup" })));
        let prompt = told(
            "e2",
            2_000,
            hook("s", "UserPromptSubmit", json!({ "prompt": "Do \u{0}it", "prompt_id": "p1" })),
        );
        archive.tell("s", &[start.clone(), prompt.clone()]).await.unwrap();
        // The same events again, as a run that is tried again sends them.
        archive.tell("s", &[start, prompt]).await.unwrap();
        assert_eq!(world.session("s").await.status, "active");
        archive.tell("s", &[told("e3", 3_000, hook("s", "Stop", json!({})))]).await.unwrap();
        let session = world.session("s").await;
        assert_eq!((session.status.as_str(), session.began_at, session.last_at), ("done", 1_000, 3_000));
        assert_eq!(session.project.as_deref(), Some("/srv/example"));
        assert_eq!(archive.current("s").await.unwrap().prompt_id.as_deref(), Some("p1"));
        let events = archive.hook_events("s", 10).await.unwrap();
        assert_eq!(
            events.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(),
            ["Stop", "UserPromptSubmit", "SessionStart"]
        );
    }

    pub(super) async fn an_empty_prompt_is_filled_from_the_latest_message(world: World) {
        let path = world.copy("simple.jsonl");
        let id = "db5b5fab-8f4d-4e27-9da1-494c73cf256d";
        let event = hook(id, "PostToolUse", json!({ "prompt_id": "p9", "transcript_path": path }));
        world.archive.tell(id, &[told("e", 1, event)]).await.unwrap();
        let passed = world.ingest().pass(id, &[], NOW).await.unwrap();
        assert_eq!((passed.lines, passed.problem), (4, None));
        world.archive.finish(id, None).await.unwrap();
        let messages = world.archive.messages(id, None, 100).await.unwrap();
        assert!(messages.iter().all(|message| message.prompt_id.as_deref() == Some("p9")));
        let latest = messages.iter().rfind(|message| message.is_prompt).unwrap();
        let filled = world.archive.prompts(id, 10).await.unwrap();
        assert_eq!(filled, [("p9".to_owned(), Some(latest.text.clone()))]);
    }

    pub(super) async fn titles_follow_their_rank(world: World) {
        let path = world.copy("unknown_types.jsonl");
        world.ingest().import(&path, NOW).await.unwrap();
        let id = "743621bb-686f-4b68-ae67-a8533344f557";
        assert_eq!(world.session(id).await.title.as_deref(), Some("Price collector cache 2"));
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"{\"type\":\"ai-title\",\"aiTitle\":\"Made up\"}\n").unwrap();
        world.ingest().import(&path, NOW).await.unwrap();
        assert_eq!(
            world.session(id).await.title.as_deref(),
            Some("Price collector cache 2"),
            "a person's own title stays"
        );
        let simple = world.copy("simple.jsonl");
        world.ingest().import(&simple, NOW).await.unwrap();
        assert!(
            world.session("db5b5fab").await.title.is_some(),
            "the first prompt, for want of a better one"
        );
    }

    pub(super) async fn words_are_found_whatever_is_typed(world: World) {
        let path = world.folder.path().join("s.jsonl");
        let said = [
            ("u1", "user", "The café serves silver coins"),
            ("u2", "assistant", "Silver is a metal; see src/main.rs for the price cache"),
            ("u3", "user", "coins silver"),
        ];
        let lines: String = said
            .iter()
            .map(|(uuid, role, text)| {
                let content = if *role == "user" { json!(text) } else { json!([{ "type": "text", "text": text }]) };
                let line = json!({ "type": role, "uuid": uuid, "sessionId": "s", "cwd": "/srv/shop",
                    "timestamp": "2026-01-05T09:00:00.000Z", "message": { "role": role, "content": content } });
                format!("{line}\n")
            })
            .collect();
        std::fs::write(&path, lines).unwrap();
        world.ingest().import(&path, NOW).await.unwrap();
        let sorted = |mut found: Vec<String>| {
            found.sort_unstable();
            found
        };
        for (words, wanted) in [
            ("silver", vec!["u1", "u2", "u3"]),
            ("SILVER coins", vec!["u1", "u3"]),
            ("\"silver coins\"", vec!["u1"]),
            ("silver -coins", vec!["u2"]),
            ("metal OR café", vec!["u1", "u2"]),
            ("\"price cache\"", vec!["u2"]),
            ("nothing", vec![]),
            ("", vec![]),
            ("-silver", vec![]),
            ("\"", vec![]),
            ("silver AND NOT (", vec![]),
            ("silver* ^ : { } ' ; -- DROP TABLE", vec![]),
        ] {
            assert_eq!(sorted(world.search(words).await), wanted, "{words:?}");
        }
        let search =
            Search { words: "silver".into(), role: Some("user".into()), limit: 1, ..Search::default() };
        let hits = world.archive.search(&search).await.unwrap();
        assert_eq!((hits.len(), hits[0].role.as_str()), (1, "user"));
        assert!(hits[0].snippet.to_lowercase().contains("\u{2}silver\u{3}"), "{}", hits[0].snippet);
        for (project, wanted) in [("SHOP", 3), ("%", 0), ("elsewhere", 0)] {
            let search = Search {
                words: "silver".into(),
                project: Some(project.into()),
                limit: 9,
                ..Search::default()
            };
            assert_eq!(world.archive.search(&search).await.unwrap().len(), wanted, "{project}");
        }
        let late = Search { words: "silver".into(), since: Some(NOW), limit: 9, ..Search::default() };
        assert_eq!(world.archive.search(&late).await.unwrap(), []);
    }

    pub(super) async fn what_is_forgotten_stays_forgotten(world: World) {
        let path = world.copy("simple.jsonl");
        let id = "db5b5fab-8f4d-4e27-9da1-494c73cf256d".to_owned();
        world.ingest().import(&path, NOW).await.unwrap();
        let word =
            world.archive.messages(&id, None, 1).await.unwrap()[0].text.split(' ').next().unwrap().to_owned();
        assert!(!world.search(&word).await.is_empty());
        assert_eq!(world.archive.forget(std::slice::from_ref(&id), NOW).await.unwrap(), 1);
        assert_eq!(world.archive.session(&id).await.unwrap(), Named::None);
        assert_eq!(world.search(&word).await, Vec::<String>::new());
        // Its file is still there, and an event of the same session comes.
        let event = hook(&id, "Stop", json!({ "transcript_path": path }));
        world.archive.tell(&id, &[told("later", NOW + 1, event)]).await.unwrap();
        world.ingest().pass(&id, &[], NOW).await.unwrap();
        world.archive.finish(&id, None).await.unwrap();
        assert_eq!(world.session(&id).await.messages, 0);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let new = json!({ "type": "user", "uuid": "after", "sessionId": id, "timestamp": "2099-01-01T00:00:00.000Z",
            "message": { "role": "user", "content": "a new thought" } });
        std::io::Write::write_all(&mut file, format!("{new}\n").as_bytes()).unwrap();
        world.ingest().pass(&id, &[], NOW).await.unwrap();
        world.archive.finish(&id, None).await.unwrap();
        assert_eq!(world.session(&id).await.messages, 1, "what is said afterwards is kept");
    }

    pub(super) async fn of_two_that_read_at_once_one_stores(world: World) {
        let current = world.archive.current("s").await.unwrap();
        let (chunk, path) = (Chunk::default(), Path::new("/x.jsonl"));
        let archive = &world.archive;
        let take = async |known, offset| {
            let position = Position { offset, identity: None };
            let (chunk, current, position) = (&chunk, &current, &position);
            archive.take(Read { session: "s", path, known, position, chunk, current, now: NOW }).await
        };
        let first = take(None, 10).await.unwrap();
        assert_eq!(take(None, 5).await.unwrap_err().kind, ErrorKind::Conflict);
        let second = take(Some(&first), 20).await.unwrap();
        assert_eq!(take(Some(&first), 15).await.unwrap_err().kind, ErrorKind::Conflict);
        assert_eq!(archive.file(path).await.unwrap().unwrap().position.offset, second.position.offset);
    }

    pub(super) async fn pages_of_sessions_are_whole(world: World) {
        for n in 0..25 {
            // Several have the same time.
            let id = format!("s{n:02}");
            world
                .archive
                .tell(&id, &[told(&format!("e{n}"), 1_000 + n / 3, hook(&id, "Stop", json!({})))])
                .await
                .unwrap();
        }
        let (mut seen, mut filter) = (Vec::new(), SessionFilter { limit: 4, ..SessionFilter::default() });
        loop {
            let page = world.archive.sessions(&filter).await.unwrap();
            let Some(last) = page.last() else { break };
            filter.after = Some((last.last_at, last.id.clone()));
            seen.extend(page.into_iter().map(|session| (session.last_at, session.id)));
        }
        assert_eq!(seen.len(), 25);
        assert!(
            seen.windows(2).all(|pair| (std::cmp::Reverse(pair[0].0), &pair[0].1)
                < (std::cmp::Reverse(pair[1].0), &pair[1].1))
        );
        assert!(matches!(world.archive.session("s1").await.unwrap(), Named::Several(ids) if ids.len() == 6));
        assert_eq!(world.archive.session("S%").await.unwrap(), Named::None);
    }
}

#[tokio::test]
async fn a_store_without_tables_is_refused_with_the_reason() {
    let store: Arc<dyn quell::quell_core::store::Store> =
        Arc::new(quell::quell_core::memory::MemoryStore::new(Arc::new(
            quell::quell_core::clock::ManualClock::at(quell::quell_core::clock::Timestamp::from_millis(0)),
        )));
    let refused = Archive::open(store).await.err().expect("it is refused");
    assert!(refused.detail.contains("sqlite:PATH"), "{refused}");
}
