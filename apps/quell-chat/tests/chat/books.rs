//! The book of conversations: the same promises in tables and in keys.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::Tenant;
use quell_chat::book::{About, Conversation, ENTRIES_MAX, Entry, Place, Role, Voice, Wanted};
use quell_chat::message::Channel::Wati;

use crate::world::{Kind, World};

fn talk(tenant: &str, customer: &str, at: i64) -> Conversation {
    let key = quell_chat::message::key(Wati, customer, None);
    let place = Place { tenant: Tenant::new(tenant).unwrap(), key };
    Conversation::begun(&place, Timestamp::from_millis(at)).unwrap()
}

fn entry(id: &str, at: i64, text: &str) -> Entry {
    let at = Timestamp::from_millis(at);
    Entry { id: id.to_owned(), at, role: Role::Customer, text: text.to_owned(), about: About::default() }
}

pub(crate) async fn an_entry_is_written_once(kind: Kind) {
    let world = World::new(kind).await;
    let (book, here) = (&world.book, talk("", "1", 10));
    book.record(&here, &[entry("a", 10, "first"), entry("b", 11, "second")]).await.unwrap();
    book.record(&here, &[entry("a", 12, "again"), entry("c", 13, "third")]).await.unwrap();
    let texts: Vec<String> =
        book.entries(&here.place(), 10).await.unwrap().into_iter().map(|entry| entry.text).collect();
    assert_eq!(texts, ["first", "second", "third"]);
    let known = book.conversation(&here.place()).await.unwrap().unwrap();
    assert_eq!((known.first_at.as_millis(), known.last_at.as_millis()), (10, 13));
    assert_eq!(known.preview, "third");
    let last: Vec<String> =
        book.entries(&here.place(), 1).await.unwrap().into_iter().map(|entry| entry.text).collect();
    assert_eq!(last, ["third"]);
    assert!(book.entries(&here.place(), 0).await.unwrap().is_empty());
    assert_eq!(book.forget(&here.place()).await.unwrap(), 3);
    assert_eq!(book.forget(&here.place()).await.unwrap(), 0);
    assert!(book.conversation(&here.place()).await.unwrap().is_none());
}

pub(crate) async fn a_long_conversation_keeps_its_end(kind: Kind) {
    let world = World::new(kind).await;
    let (book, here) = (&world.book, talk("", "1", 0));
    let all: Vec<Entry> =
        (0..ENTRIES_MAX + 5).map(|n| entry(&format!("e{n}"), 1, &format!("text {n}"))).collect();
    for some in all.chunks(500) {
        book.record(&here, some).await.unwrap();
    }
    let kept = book.entries(&here.place(), usize::MAX).await.unwrap();
    assert_eq!(kept.len(), ENTRIES_MAX);
    assert_eq!(kept[0].text, "text 5");
    assert_eq!(kept[ENTRIES_MAX - 1].text, format!("text {}", ENTRIES_MAX + 4));
}

pub(crate) async fn who_answers_is_kept_and_listed(kind: Kind) {
    let world = World::new(kind).await;
    let book = &world.book;
    for (number, tenant) in [(1, ""), (2, "acme"), (3, "acme")] {
        let here = talk(tenant, &number.to_string(), number);
        book.record(&here, &[entry("a", number, "hi")]).await.unwrap();
    }
    let second = talk("acme", "2", 2);
    let handed = Conversation { state: Voice::Human, reason: Some("asked for".to_owned()), ..second.clone() };
    let note = Entry { role: Role::Note, ..entry("n", 9, "handed over") };
    book.hand(&handed, &note).await.unwrap();
    // Later entries change nothing about who answers.
    book.record(&second, &[entry("b", 10, "more")]).await.unwrap();
    let known = book.conversation(&second.place()).await.unwrap().unwrap();
    assert_eq!((known.state, known.reason.as_deref()), (Voice::Human, Some("asked for")));
    assert_eq!(known.changed_at.as_millis(), 9);
    let list = async |wanted: Wanted| {
        let found = book.list(&wanted).await.unwrap();
        found.into_iter().map(|one| one.customer).collect::<Vec<_>>()
    };
    let wanted = Wanted { limit: 10, ..Wanted::default() };
    assert_eq!(list(wanted.clone()).await, ["2", "3", "1"], "the latest first");
    assert_eq!(list(Wanted { limit: 1, ..wanted.clone() }).await, ["2"]);
    assert_eq!(list(Wanted { state: Some(Voice::Human), ..wanted.clone() }).await, ["2"]);
    assert_eq!(list(Wanted { state: Some(Voice::Bot), ..wanted.clone() }).await, ["3", "1"]);
    assert_eq!(
        list(Wanted { tenant: Some(Tenant::new("acme").unwrap()), ..wanted.clone() }).await,
        ["2", "3"]
    );
    assert_eq!(list(Wanted { customer: Some("1".into()), ..wanted.clone() }).await, ["1"]);
    let back = Conversation { state: Voice::Bot, reason: None, ..known };
    book.hand(&back, &entry("m", 11, "back")).await.unwrap();
    let known = book.conversation(&second.place()).await.unwrap().unwrap();
    assert_eq!((known.state, known.reason), (Voice::Bot, None));
    assert!(list(Wanted { state: Some(Voice::Human), ..wanted }).await.is_empty());
}

pub(crate) async fn texts_of_all_kinds_come_back_as_they_were(kind: Kind) {
    let world = World::new(kind).await;
    let here = talk("ténant", "{braces}:%\u{1f}\"'\\", 0);
    let texts =
        ["", "🪙 ünï\n\t\"quoted\" \\ back", "\u{202e}right", "'; DROP TABLE chat_entry; --", "[+5s] {}"];
    let entries: Vec<Entry> =
        texts.iter().enumerate().map(|(n, text)| entry(&format!("{n}"), 1, text)).collect();
    world.book.record(&here, &entries).await.unwrap();
    let back = world.book.entries(&here.place(), 10).await.unwrap();
    assert_eq!(back, entries);
    let about = About { seqs: Some((7, 9)), message_count: Some(2), is_aggregated: true, ..About::default() };
    let more = Entry { about, ..entry("more", 2, "x") };
    world.book.record(&here, std::slice::from_ref(&more)).await.unwrap();
    assert_eq!(world.book.entries(&here.place(), 1).await.unwrap(), [more]);
}
