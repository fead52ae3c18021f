//! The fixtures against what is expected of them, field by field, and read in pieces.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use quell_transcripts::line::{Line, Tally, TitleRank, Usage, read_line};
use quell_transcripts::reader::{Position, Reader, Start};
use quell_transcripts::roots::Roots;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcripts")
}

/// What an archive makes of lines: messages once per `uuid`, usage once per `message.id`.
#[derive(Debug, Default, PartialEq)]
struct Archive {
    tally: Tally,
    uuids: BTreeSet<String>,
    duplicates: u64,
    sessions: BTreeSet<String>,
    prompts: Vec<String>,
    usage: BTreeMap<String, Usage>,
    models: BTreeSet<String>,
    title: Option<(TitleRank, String)>,
    tag: Option<String>,
}

impl Archive {
    fn line(&mut self, bytes: &[u8]) {
        let line = read_line(bytes);
        self.tally.line(&line);
        let Line::Entry(entry) = line else { return };
        self.sessions.extend(entry.session_id.clone());
        if let Some(title) = &entry.title
            && self.title.as_ref().is_none_or(|(rank, _)| title.rank >= *rank)
        {
            self.title = Some((title.rank, title.text.clone()));
        }
        self.tag = entry.tag.clone().or(self.tag.take());
        let Some(uuid) = entry.uuid.clone() else { return };
        if !self.uuids.insert(uuid.clone()) {
            self.duplicates += 1;
            return;
        }
        self.tally.message(&entry);
        let Some(message) = entry.message else { return };
        if message.is_prompt {
            self.prompts.push(uuid);
        }
        if let Some(id) = message.api_id {
            self.usage.insert(id, message.usage.unwrap_or_default());
        }
        self.models.extend(message.model);
    }

    /// Reads to the end from a position.
    fn read(&mut self, path: &Path, from: &Position, batch: usize) -> (Position, Start) {
        let (mut reader, start) = Reader::open(File::open(path).unwrap(), from).unwrap();
        loop {
            let batch = reader.read_batch(batch).unwrap();
            batch.lines().for_each(|line| self.line(line.bytes));
            if batch.end {
                return (reader.position(), start);
            }
        }
    }

    fn told(&self, bytes: u64, safe_offset: u64) -> Value {
        let tally = &self.tally;
        let sum = |of: fn(&Usage) -> i64| self.usage.values().map(of).sum::<i64>();
        json!({
            "bytes": bytes,
            "safe_offset": safe_offset,
            "tail": if bytes == safe_offset { "none" } else { "partial" },
            "non_blank_complete_lines": tally.lines,
            "blank_lines": tally.blanks,
            "malformed_lines": tally.malformed,
            "types": tally.types,
            "unknown_type_lines": tally.unknown_types,
            "lines_without_uuid": tally.without_uuid,
            "duplicate_uuid_lines": self.duplicates,
            "distinct_uuids": self.uuids.len(),
            "session_ids": self.sessions,
            "messages": tally.messages,
            "sidechain_messages": tally.sidechain_messages,
            "meta_messages": tally.meta_messages,
            "prompts": tally.prompts,
            "prompt_uuids": self.prompts,
            "tool_use_blocks": tally.tool_uses,
            "tool_result_blocks": tally.tool_results,
            "api_messages": self.usage.len(),
            "usage_once_per_message_id": {
                "input_tokens": sum(|usage| usage.input_tokens),
                "output_tokens": sum(|usage| usage.output_tokens),
                "cache_creation_input_tokens": sum(|usage| usage.cache_creation_input_tokens),
                "cache_read_input_tokens": sum(|usage| usage.cache_read_input_tokens),
            },
            "models": self.models,
            "first_timestamp": tally.first.as_ref().map(|moment| &moment.written),
            "last_timestamp": tally.last.as_ref().map(|moment| &moment.written),
        })
    }
}

#[test]
fn every_fixture_is_read_as_expected() {
    let expected = fs::read_to_string(folder().join("expected.json")).unwrap();
    let expected: BTreeMap<String, Value> = serde_json::from_str(&expected).unwrap();
    assert_eq!(expected.len(), 12);
    for (name, mut expected) in expected {
        let path = folder().join(&name);
        for batch in [1, 1000, 1 << 20] {
            let mut archive = Archive::default();
            let (position, start) = archive.read(&path, &Position::default(), batch);
            assert_eq!(start, Start::Fresh);
            let mut told = archive.told(path.metadata().unwrap().len(), position.offset);
            let fields = expected.as_object_mut().unwrap();
            fields.remove("note");
            if fields.remove("prompt_uuids_note").is_some() || name.starts_with("large") {
                told["prompt_uuids"].as_array_mut().unwrap().truncate(20);
            }
            assert_eq!(told, expected, "{name}, {batch} bytes at once");
            // A second time nothing is new.
            let before = archive.tally.messages;
            archive.read(&path, &Position::default(), batch);
            assert_eq!(archive.tally.messages, before, "{name}");
        }
    }
}

#[test]
fn titles_and_tags_of_a_session() {
    let mut archive = Archive::default();
    archive.read(&folder().join("unknown_types.jsonl"), &Position::default(), 1000);
    assert_eq!(archive.title, Some((TitleRank::Custom, "Price collector cache 2".to_owned())));
    assert_eq!(archive.tag.as_deref(), Some("keep"));
}

#[test]
fn texts_are_those_that_were_written() {
    let mut texts = Vec::new();
    for line in fs::read(folder().join("unicode.jsonl")).unwrap().split(|byte| *byte == b'\n') {
        if let Line::Entry(entry) = read_line(line) {
            texts.push(entry.message.unwrap().text);
        }
    }
    assert_eq!(
        texts,
        [
            "Prüfe den Preis 👩🏽\u{200d}🔧 für „Silber“ 🪙",
            "Erledigt ✅ — 3 Treffer",
            "مرحبا، ما سعر العملة؟",
            "السعر ١٢٫٥",
            "e\u{301} vs é, line\u{2028}sep, zero\u{200b}width",
            "ok 🇧🇷🏳️\u{200d}🌈",
            "硬币价格 \u{fffd} nul",
            "価格は 12,50 € です",
        ]
    );
}

#[test]
fn a_line_that_was_half_written_is_read_once_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    fs::copy(folder().join("truncated_last_line.jsonl"), &path).unwrap();
    let mut archive = Archive::default();
    let (position, _) = archive.read(&path, &Position::default(), 1 << 20);
    assert_eq!((position.offset, archive.tally.messages), (1573, 3));

    // It grows in place, as the agent writes it.
    let whole = fs::read(folder().join("truncated_last_line.completed.jsonl")).unwrap();
    let had = fs::read(&path).unwrap();
    assert!(whole.starts_with(&had));
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&whole[had.len()..]).unwrap();
    let (position, start) = archive.read(&path, &position, 1 << 20);
    assert_eq!((start, position.offset, archive.tally.messages), (Start::Resumed, 2395, 4));
    assert_eq!((archive.duplicates, archive.tally.malformed), (0, 0));

    // From the beginning again, nothing is new.
    archive.read(&path, &Position::default(), 1 << 20);
    assert_eq!((archive.duplicates, archive.tally.messages), (4, 4));

    // Exchanged for a copy, it is read again from its beginning, and still nothing is new.
    let copy = dir.path().join("copy");
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    let (_, start) = archive.read(&path, &position, 1 << 20);
    assert_eq!((start, archive.duplicates, archive.tally.messages), (Start::Replaced, 8, 4));
}

#[test]
fn subagents_of_a_session_are_found_and_opened() {
    let session = "9af034b9-0143-48ff-80d0-04b21d417ead";
    let folder = folder().join("sidechain_split");
    let roots = Roots::new(vec![folder.clone()]);
    let found = roots.subagents(&folder.join(format!("{session}.jsonl")), session);
    assert_eq!((found.own.len(), found.beside.len(), found.cut), (1, 0, false));
    let opened = roots.open(&found.own[0]).unwrap();
    let (mut reader, _) = Reader::open(opened.file, &Position::default()).unwrap();
    let batch = reader.read_batch(1 << 20).unwrap();
    for line in batch.lines() {
        let Line::Entry(entry) = read_line(line.bytes) else { panic!("{line:?}") };
        assert!(entry.sidechain && entry.session_id.as_deref() == Some(session));
        assert_eq!(entry.agent_id.as_deref(), Some("a1c3f252"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_that_grows_in_any_steps_gives_what_it_gives_at_once(
        cuts in proptest::collection::vec(0_usize..9486, 0..8),
        name in prop_oneof![Just("tools_thinking.jsonl"), Just("unknown_types.jsonl"), Just("unicode.jsonl")],
        batch in 1_usize..5000,
    ) {
        let bytes = fs::read(folder().join(name)).unwrap();
        let mut at_once = Archive::default();
        at_once.read(&folder().join(name), &Position::default(), 1 << 20);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        let mut file = File::create(&path).unwrap();
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let (mut archive, mut position) = (Archive::default(), Position::default());
        for piece in cuts.windows(2) {
            file.write_all(&bytes[piece[0]..piece[1]]).unwrap();
            let (next, start) = archive.read(&path, &position, batch);
            prop_assert!(matches!(start, Start::Fresh | Start::Resumed), "{start:?}");
            position = next;
        }
        prop_assert_eq!(archive, at_once);
    }

    #[test]
    fn any_bytes_are_lines_of_some_kind(bytes in proptest::collection::vec(
        prop_oneof![any::<u8>(), Just(b'\n'), Just(b'{'), Just(b'}'), Just(b'"')], 0..2000))
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        fs::write(&path, &bytes).unwrap();
        let mut archive = Archive::default();
        archive.read(&path, &Position::default(), 100);
        let newlines = bytes.iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(archive.tally.lines + archive.tally.blanks, u64::try_from(newlines).unwrap());
    }
}
