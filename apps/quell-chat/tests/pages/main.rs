//! What the dashboard shows of conversations: on a real store, with what customers really write, and worse.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod browser;
#[path = "../../../../crates/quell-cli/tests/browser/driver.rs"]
#[expect(dead_code, reason = "shared with a test that uses all of it")]
mod driver;
mod world;

use quell_chat::book::{About, Conversation, Entry, Place, Role, Voice};
use reqwest::StatusCode;
use serde_json::json;

use crate::world::{NOW, World, conversation, entry, place};

const BASE: &str = "/ui/app/chat";
const HOSTILE: &str = "<script>alert(1)</script>\" onmouseover=\"alert(2)\" '--> </div></main>\u{202e}&amp;";

#[tokio::test]
async fn an_empty_book_says_how_to_begin() {
    let world = World::new().await;
    let page = world.page(BASE).await;
    assert!(page.contains("aria-current=\"page\">Chat") && page.contains("quell demo chat"), "{page}");
    let page = world.page(&format!("{BASE}?answers=human&customer=12025550110&tenant=coins")).await;
    for part in [
        "No conversation is like that.",
        "value=\"12025550110\"",
        "value=\"coins\"",
        "<option value=\"human\" selected>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(world.get(&format!("{BASE}?answers=nobody")).await.0, StatusCode::BAD_REQUEST);
    for path in ["/with", "/with/", "/with/wati:12025550110", "/with/nonsense", "/else", "/with/a/b"] {
        assert_eq!(world.get(&format!("{BASE}{path}")).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn the_list_tells_who_answers_and_why_and_finds_some_of_them() {
    let world = World::new().await;
    let (ana, bo, chidi) =
        (place("", "12025550110"), place("coins", "12025550111"), place("", "12025550112"));
    for (at, place, name) in [(3, &ana, Some("Ana Souza")), (2, &bo, None), (1, &chidi, None)] {
        let one = Conversation { name: name.map(str::to_owned), ..conversation(place, NOW + at) };
        world.record(&one, &[entry(at, Role::Customer, &format!("I am {}", place.key))]).await;
    }
    world.desk.take_over(&bo, "ada").await.unwrap();

    let page = world.page(BASE).await;
    for part in [
        &format!(
            "href=\"{BASE}/with/wati%3A12025550110\">Ana Souza</a> <span class=\"none user\">12025550110<"
        ),
        &format!("href=\"{BASE}/with/wati%3A12025550111?tenant=coins\">12025550111</a>"),
        "<span class=\"state done\">the bot</span>",
        "<span class=\"state waiting\">a person</span>",
        "taken over by ada",
        "I am wati:12025550112",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("<time datetime=\"") && page.contains(" ago</time>"), "{page}");

    let found = async |query: &str| {
        let page = world.page(&format!("{BASE}?{query}")).await;
        let link = format!("{BASE}/with/wati%3A1202555");
        page.split(&link).skip(1).map(|rest| rest[..4].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("").await, ["0110", "0111", "0112"], "the one with the latest message first");
    assert_eq!(found("answers=human").await, ["0111"]);
    assert_eq!(found("answers=bot").await, ["0110", "0112"]);
    assert_eq!(found("tenant=coins").await, ["0111"]);
    assert_eq!(found("customer=12025550112").await, ["0112"]);
    assert_eq!(found("customer=12025550112&answers=human").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_list_is_never_longer_than_a_hundred_and_says_so() {
    let world = World::new().await;
    for n in 0..101 {
        let place = place("", &format!("1202555{n:04}"));
        world.record(&conversation(&place, NOW + n), &[entry(n, Role::Customer, "Hi")]).await;
    }
    let page = world.page(BASE).await;
    assert_eq!(page.matches("<th scope=\"row\">").count(), 100);
    assert!(page.contains("the latest hundred") && !page.contains("wati%3A12025550000\""), "{page}");
}

#[tokio::test]
async fn what_customers_write_stays_text() {
    let world = World::new().await;
    let whom = place("", HOSTILE);
    let some = Some(HOSTILE.to_owned());
    let one = Conversation { name: some.clone(), address: some.clone(), ..conversation(&whom, NOW) };
    let about = About { delivery: some.clone(), by: some.clone(), ..About::default() };
    let said = format!("{HOSTILE}\n  indented\n{}", "w".repeat(3_000));
    let entries = [
        entry(1, Role::Customer, &said),
        Entry { about: about.clone(), ..entry(2, Role::Bot, HOSTILE) },
        Entry { about, ..entry(3, Role::Human, HOSTILE) },
    ];
    world.record(&one, &entries).await;
    let handed = Conversation { state: Voice::Human, reason: some, ..one };
    world.book().hand(&handed, &entry(4, Role::Note, HOSTILE)).await.unwrap();
    world.write(&whom, &json!({ "text": HOSTILE, "name": HOSTILE })).await;
    world.desk.pause(&whom, HOSTILE).await.unwrap();

    let list = world.page(BASE).await;
    let link = list.split(&format!("href=\"{BASE}/with/")).nth(1).unwrap().split('"').next().unwrap();
    let page = world.page(&format!("{BASE}/with/{link}")).await;
    let asked = "%22%3E%3Cscript%3E";
    let asked = world.page(&format!("{BASE}?customer={asked}")).await;
    for page in [&list, &page, &asked] {
        assert!(!page.contains("<script>") && !page.contains("\" onmouseover"), "{page}");
        assert_eq!(page.matches("</main>").count(), 1, "{page}");
    }
    for part in [
        "Why: <span class=\"user\">&#60;script&#62;",
        "Paused by <span class=\"user\">&#60;script&#62;",
        "\n  indented\n",
        "<span class=\"state failed\">&#60;script&#62;",
        // One word for a shell: what looks like the end of it is quoted.
        "quell chat resume &#39;wati:&#60;script&#62;alert(1)&#60;/script&#62;",
        "&#39;\\&#39;&#39;--&#62;",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(page.matches("<div class=\"said\">&#60;script&#62;").count(), 4, "{page}");
}

#[tokio::test]
async fn a_conversation_shows_who_said_what_and_what_nobody_knows() {
    let world = World::new().await;
    let ana = place("coins", "12025550110");
    let one = Conversation { name: Some("Ana Souza".to_owned()), ..conversation(&ana, NOW) };
    let burst = About { is_aggregated: true, message_count: Some(3), ..About::default() };
    let by = About { by: Some("ada".to_owned()), ..About::default() };
    let unknown = About { delivery: Some("unknown".to_owned()), ..About::default() };
    let entries = [
        Entry { about: burst, ..entry(1, Role::Customer, "Hi!\n[+1s] do you buy coins?\n[+2s] silver") },
        entry(2, Role::Bot, "We do."),
        Entry { about: by, ..entry(3, Role::Human, "I am here.") },
        Entry { about: unknown, ..entry(4, Role::Bot, "Are you there?") },
    ];
    world.record(&one, &entries).await;
    let page = world.page(&at(&ana)).await;
    let order = ["Ana Souza</span>", ">Bot</span>", ">ada</span>", ">Bot</span>"];
    let who: Vec<&str> = page.split("<h3>").skip(1).collect();
    assert_eq!(who.len(), 4);
    for (heading, name) in who.iter().zip(order) {
        assert!(heading.starts_with("<span class=\"user\">") && heading.contains(name), "{heading}");
    }
    for part in [
        "id=\"answers\">answered by the bot</span>",
        "· 3 messages in one burst",
        "<span class=\"state failed\">unknown whether sent</span>",
        "quell chat takeover wati:12025550110 --tenant coins",
        "class=\"message prompt person\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in ["id=\"waiting\"", "id=\"reason\"", "id=\"paused\"", "/ui/lanes/"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    // Of another tenant there is none.
    let other = Place { key: ana.key.clone(), ..place("", "x") };
    assert_eq!(world.get(&at(&other)).await.0, StatusCode::NOT_FOUND);

    world.desk.take_over(&ana, "ada").await.unwrap();
    let page = world.page(&at(&ana)).await;
    for part in [
        "answered by a person",
        "The bot says nothing here",
        "Why: <span class=\"user\">taken over by ada",
        "quell chat resume wati:12025550110",
        "class=\"message meta\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn what_waits_is_shown_also_before_anything_was_said() {
    let world = World::new().await;
    let ana = place("", "12025550110");
    world.write(&ana, &json!({ "text": "Hi!" })).await;
    let picture =
        json!({ "type": "image", "media": { "url": "https://media.example.com/1.jpg" }, "text": "this one" });
    world.write(&ana, &picture).await;
    let page = world.page(&at(&ana)).await;
    for part in [
        "Nothing is in the book yet",
        "What waits",
        "<p class=\"user\">Buffered 2, due since",
        "<span class=\"user\">Hi!</span>",
        "[image: https://media.example.com/1.jpg] this one",
        "href=\"/ui/lanes/chat/wati%3A12025550110\"",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    world.page("/ui/lanes/chat/wati%3A12025550110").await;
    assert!(!page.contains("First message") && !page.contains("id=\"paused\""), "{page}");

    // What a worker has taken is no longer listed, and not forgotten.
    world.claim().await;
    world.write(&ana, &json!({ "text": "hello?" })).await;
    let page = world.page(&at(&ana)).await;
    assert!(page.contains("2 messages in the answer that is under way"), "{page}");
    assert!(page.contains("<span class=\"user\">hello?</span>") && !page.contains("this one"), "{page}");

    world.desk.pause(&ana, "ada").await.unwrap();
    let page = world.page(&at(&ana)).await;
    assert!(page.contains("id=\"paused\"") && page.contains("Paused by <span class=\"user\">ada"), "{page}");
    assert!(page.contains("quell chat resume wati:12025550110"), "{page}");
}

#[tokio::test]
async fn of_a_long_conversation_the_latest_is_shown() {
    let world = World::new().await;
    let ana = place("", "12025550110");
    let entries: Vec<Entry> = (0..250).map(|n| entry(n, Role::Customer, &format!("word{n}"))).collect();
    world.record(&conversation(&ana, NOW), &entries).await;
    let page = world.page(&at(&ana)).await;
    assert_eq!(page.matches("<article").count(), 200);
    assert!(page.contains("the latest 200 entries") && !page.contains(">word49<"), "{page}");
    assert!(page.contains(">word50<") && page.contains(">word249<"), "{page}");
    let newest = page.split("id=\"newest\"").nth(1).unwrap();
    assert!(newest.contains(">word249<") && !newest.contains(">word248<"), "{newest}");
}

/// The page of a conversation.
fn at(place: &Place) -> String {
    let tenant = if place.tenant.is_none() { String::new() } else { format!("?tenant={}", place.tenant) };
    format!("{BASE}/with/{}{tenant}", place.key)
}
