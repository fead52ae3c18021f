//! What the dashboard shows of an archive: on a real store, with what people and agents really write, and worse.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod browser;
#[path = "../../../../crates/quell-cli/tests/browser/driver.rs"]
#[expect(dead_code, reason = "shared with a test that uses all of it")]
mod driver;
mod world;

use reqwest::StatusCode;
use serde_json::json;

use crate::world::{NOW, World, hook, uuid};

const BASE: &str = "/ui/app/transcripts";
const HOSTILE: &str = "<script>alert(1)</script>\" onmouseover=\"alert(2)\" '--> </div></main>\u{202e}&amp;";

#[tokio::test]
async fn an_empty_archive_says_what_to_do() {
    let world = World::new().await;
    let page = world.page(BASE).await;
    assert!(
        page.contains("aria-current=\"page\">Transcripts") && page.contains("quell hook install"),
        "{page}"
    );
    let page = world.page(&format!("{BASE}?project=shop&status=active&since=7d")).await;
    assert!(page.contains("No session is like that.") && page.contains("value=\"shop\""), "{page}");
    assert!(page.contains("<option selected>active</option>"), "{page}");
    let page = world.page(&format!("{BASE}/search")).await;
    assert!(page.contains("Write some words"), "{page}");
    let page = world.page(&format!("{BASE}/search?q=anything")).await;
    assert!(page.contains("Nobody said that"), "{page}");
    for path in ["/sessions", "/sessions/", "/sessions/nobody", "/else", "/sessions/a/b"] {
        let (status, _) = world.get(&format!("{BASE}{path}")).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn the_list_tells_what_each_session_does_and_finds_some_of_them() {
    let world = World::new().await;
    let told = [
        ("s-started", "/home/ada/shop", "SessionStart", json!({}), "started", "started"),
        ("s-active", "/home/ada/shop", "UserPromptSubmit", json!({}), "active", "active"),
        (
            "s-asks",
            "/home/ada/till",
            "Notification",
            json!({ "message": "Claude needs your permission to use Bash" }),
            "waiting",
            "permission_needed",
        ),
        (
            "s-idle",
            "/home/ada/till",
            "Notification",
            json!({ "message": "Claude is waiting for your input" }),
            "idle",
            "idle",
        ),
        ("s-done", "/home/bob/blog", "Stop", json!({}), "done", "done"),
        ("s-ended", "/home/bob/blog", "SessionEnd", json!({}), "", "ended"),
    ];
    for (place, (session, cwd, event, more, _, _)) in told.iter().enumerate() {
        let at = NOW - 1_000 * i64::try_from(place).unwrap();
        world.tell(session, at, hook(session, event, cwd, more)).await;
    }
    let page = world.page(BASE).await;
    for (session, _, _, _, tone, status) in &told {
        assert!(page.contains(&format!("href=\"{BASE}/sessions/{session}\"")), "{session}: {page}");
        assert!(page.contains(&format!("<span class=\"state {tone}\">{status}</span>")), "{status}: {page}");
    }
    assert!(page.contains("title=\"/home/ada/shop\">shop</span>"), "{page}");
    assert!(page.contains("<time datetime=\"") && page.contains(" ago</time>"), "{page}");
    let order: Vec<usize> =
        told.iter().map(|(session, ..)| page.find(&format!("/{session}\"")).unwrap()).collect();
    assert!(order.is_sorted(), "the last active one is first");

    let some = world.page(&format!("{BASE}?project=TILL")).await;
    assert!(
        some.contains("/s-asks\"") && some.contains("/s-idle\"") && !some.contains("/s-done\""),
        "{some}"
    );
    let some = world.page(&format!("{BASE}?status=permission_needed")).await;
    assert!(some.contains("/s-asks\"") && !some.contains("/s-idle\""), "{some}");
    let some = world.page(&format!("{BASE}?project=%25")).await;
    assert!(some.contains("No session is like that."), "a sign is a sign: {some}");
    let some = world.page(&format!("{BASE}?since=2999-01-01")).await;
    assert!(some.contains("No session is like that."), "{some}");
    for (query, told) in [("since=yesterday", "is no time"), ("status=%3Cb%3E", "There is no status")] {
        let page = world.page(&format!("{BASE}?{query}")).await;
        assert!(page.contains(told) && page.contains("role=\"alert\"") && !page.contains("<b>"), "{page}");
    }
    assert_eq!(world.get(&format!("{BASE}?after=x")).await.0, StatusCode::BAD_REQUEST);
    let part = world.part(BASE).await;
    assert!(
        !part.contains("<form") && part.contains("id=\"sessions\"") && part.contains("id=\"clock\""),
        "{part}"
    );
}

#[tokio::test]
async fn many_sessions_are_shown_page_by_page_and_none_twice() {
    let world = World::new().await;
    for n in 0..120 {
        let session = format!("s{n:03}");
        // Some at the same moment.
        world.tell(&session, NOW - 1_000 * (n / 7), hook(&session, "Stop", "/w", &json!({}))).await;
    }
    let (mut seen, mut place) = (Vec::new(), BASE.to_owned());
    loop {
        let page = world.page(&place).await;
        let link = format!("<a class=\"user\" href=\"{BASE}/sessions/");
        let links = page.split(&link).skip(1);
        seen.extend(links.map(|rest| rest.split('"').next().unwrap().to_owned()));
        let next =
            page.split("<a class=\"button\" href=\"").skip(1).find(|link| link.contains(">Next page<"));
        let Some(next) = next else { break };
        place = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    let wanted: Vec<String> = (0..120).map(|n| format!("s{n:03}")).collect();
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn what_was_said_stays_text() {
    let world = World::new().await;
    let session = "s/1 \"x\"";
    let lines = [
        json!({ "type": "custom-title", "customTitle": HOSTILE, "sessionId": session }),
        json!({ "type": "user", "uuid": "u\"><script>1", "cwd": HOSTILE,
            "message": { "role": "user", "content": format!("{HOSTILE}\n  indented\n{}", "w".repeat(3_000)) } }),
        json!({ "type": "assistant", "uuid": uuid(2), "message": { "role": "assistant", "model": HOSTILE, "id": "msg_1",
            "usage": { "input_tokens": 1_500, "output_tokens": 2_340_000, "cache_read_input_tokens": 500 },
            "content": [
                { "type": "thinking", "thinking": HOSTILE },
                { "type": "text", "text": "all is \u{2}well\u{3}" },
                { "type": "tool_use", "id": "t1", "name": "Bash", "input": { "command": HOSTILE } },
            ] } }),
        json!({ "type": "user", "uuid": uuid(3), "message": { "role": "user",
            "content": [{ "type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no" }] } }),
        json!({ "type": "user", "uuid": uuid(4), "isMeta": true,
            "message": { "role": "user", "content": "Caveat: nobody typed this" } }),
    ];
    world.lines(session, &lines).await;
    let mut told = hook(session, "Stop", HOSTILE, &json!({}));
    told.event = HOSTILE.to_owned();
    world.tell(session, NOW, told).await;
    world.finish(session, Some(&format!("it is outside: {HOSTILE}"))).await;

    let place = format!("{BASE}/sessions/s%2F1%20%22x%22");
    let list = world.page(BASE).await;
    assert!(list.contains(&format!("href=\"{place}\"")) && list.contains(">not read</span>"), "{list}");
    let page = world.page(&place).await;
    let found = world.page(&format!("{BASE}/search?q=onmouseover")).await;
    let asked = world.page(&format!("{BASE}/search?q=%22%3E%3Cscript%3E&project=%22%3E%3Cscript%3E")).await;
    for page in [&list, &page, &found, &asked] {
        assert!(!page.contains("<script>") && !page.contains("\" onmouseover"), "{page}");
        assert_eq!(page.matches("</main>").count(), 1, "{page}");
    }
    for part in [
        "Its transcript is not read: <span class=\"user\">it is outside: &#60;script&#62;",
        "<article class=\"message person prompt\" id=\"m-u&#34;&#62;&#60;script&#62;1\">",
        "href=\"#m-u%22%3E%3Cscript%3E1\">Prompt</a>",
        "\n  indented\n",
        "<details class=\"thinking\"><summary>Thinking</summary>",
        "<li class=\"mono user\">Bash: &#60;script&#62;",
        "1 result of tools, <b class=\"alarm\">1 failed</b>",
        "class=\"message person meta\"",
        "<span title=\"2\u{202f}000\">2k</span>",
        "title=\"2\u{202f}340\u{202f}000\">2.3M",
        "What its hook told last",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(found.contains("&#60;script&#62;") && found.contains("<mark>onmouseover</mark>"), "{found}");
    assert!(found.contains("?at="), "{found}");
}

#[tokio::test]
async fn a_long_session_is_shown_a_hundred_messages_at_a_time() {
    let world = World::new().await;
    let lines: Vec<_> = (0..250)
        .map(|n| {
            let role = if n % 2 == 0 { "user" } else { "assistant" };
            json!({ "type": role, "uuid": uuid(n), "message": { "role": role, "content": format!("word{n} said") } })
        })
        .collect();
    // Others stand between them.
    for some in lines.chunks(10) {
        world.lines("long", some).await;
        let between = json!({ "type": "user", "uuid": format!("other {}", some[0]["uuid"]),
            "message": { "role": "user", "content": "elsewhere" } });
        world.lines("other", &[between]).await;
    }
    world.finish("long", None).await;
    let place = format!("{BASE}/sessions/long");
    let shown = |page: &str| -> Vec<usize> {
        let parts = page.split("<div class=\"said\">word").skip(1);
        parts.map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    let first = world.page(&place).await;
    assert_eq!(shown(&first), (0..100).collect::<Vec<_>>());
    assert!(
        first.contains("Page 1 of 3") && first.contains("Newest page") && !first.contains("Earlier"),
        "{first}"
    );
    assert_eq!(shown(&world.page(&format!("{place}?page=2")).await), (100..200).collect::<Vec<_>>());
    let last = world.page(&format!("{place}?page=last")).await;
    assert_eq!(shown(&last), (200..250).collect::<Vec<_>>());
    assert!(last.contains("Earlier") && !last.contains("Later"), "{last}");
    for (page, wanted) in [("0", 0), ("-5", 0), ("999", 200), ("9223372036854775807", 200)] {
        assert_eq!(shown(&world.page(&format!("{place}?page={page}")).await)[0], wanted, "{page}");
    }
    assert_eq!(world.get(&format!("{place}?page=x")).await.0, StatusCode::BAD_REQUEST);

    // What is found leads to the page on which it stands.
    for (n, first) in [(0, 0), (99, 0), (100, 100), (199, 100), (249, 200)] {
        let found = world.page(&format!("{BASE}/search?q=word{n}")).await;
        let link = found.split(&format!("href=\"{place}?at=")).nth(1).unwrap().split('"').next().unwrap();
        let (at, anchor) = link.split_once('#').unwrap();
        assert_eq!(anchor, format!("m-{}", uuid(n)));
        let page = world.page(&format!("{place}?at={at}")).await;
        assert!(page.contains(&format!("id=\"{anchor}\"")), "{n}");
        assert_eq!(shown(&page)[0], first, "{n}");
    }
}

#[tokio::test]
async fn a_very_long_text_is_shown_whole_to_those_who_ask() {
    let world = World::new().await;
    let text = format!("{}the end", "ü".repeat(6_000));
    let line = json!({ "type": "user", "uuid": uuid(1), "message": { "role": "user", "content": text } });
    world.lines("s", &[line]).await;
    let page = world.page(&format!("{BASE}/sessions/s")).await;
    assert!(!page.contains("the end</div>") && page.contains("bytes more"), "{page}");
    let link = page.split("bytes more: <a href=\"").nth(1).unwrap().split(['"']).next().unwrap();
    let page = world.page(link.split("#m-").next().unwrap().replace("&#38;", "&").as_str()).await;
    assert!(page.contains("the end</div>") && !page.contains("bytes more"), "{page}");
}

#[tokio::test]
async fn what_subagents_said_is_folded_and_unfolds_where_something_was_found() {
    let world = World::new().await;
    let said = |n: usize, side: bool, agent: Option<&str>, text: &str| {
        json!({ "type": "assistant", "uuid": uuid(n), "isSidechain": side, "agentId": agent,
            "message": { "role": "assistant", "content": [{ "type": "text", "text": text }] } })
    };
    let lines = [
        said(1, false, None, "I ask two others"),
        said(2, true, Some("a1"), "one begins"),
        said(3, true, Some("a1"), "one ends"),
        said(4, true, Some("b2"), "two is a needle"),
        said(5, false, None, "both are back"),
    ];
    world.lines("s", &lines).await;
    let page = world.page(&format!("{BASE}/sessions/s")).await;
    assert_eq!(page.matches("<details class=\"side\"").count(), 2, "{page}");
    assert!(page.contains("<span class=\"mono user\">a1</span>: 2 messages</summary>"), "{page}");
    assert!(page.contains("<span class=\"mono user\">b2</span>: 1 message</summary>"), "{page}");
    assert!(page.contains(">Subagent</a>") && page.contains(">Assistant</a>"), "{page}");
    assert!(!page.contains(" open>"), "{page}");
    let found = world.page(&format!("{BASE}/search?q=needle")).await;
    let at = found.split("?at=").nth(1).unwrap().split('#').next().unwrap();
    let page = world.page(&format!("{BASE}/sessions/s?at={at}")).await;
    let open: Vec<&str> =
        page.split("<details class=\"side\"").filter(|part| part.contains(" open>")).collect();
    assert!(open.len() == 1 && open[0].contains("two is a needle"), "{page}");
}

#[tokio::test]
async fn a_search_is_limited_by_what_the_form_says() {
    let world = World::new().await;
    for (session, cwd) in [("s1", "/w/shop"), ("s2", "/w/till")] {
        let lines = ["user", "assistant"].map(|role| {
            json!({ "type": role, "uuid": format!("{session}-{role}"), "cwd": cwd,
                "message": { "role": role, "content": "the needle" } })
        });
        world.lines(session, &lines).await;
    }
    let hits = async |query: &str| {
        let page = world.page(&format!("{BASE}/search?q=needle{query}")).await;
        page.matches("<mark>needle</mark>").count()
    };
    assert_eq!(hits("").await, 4);
    assert_eq!(hits("&role=user").await, 2);
    assert_eq!(hits("&project=SHOP&role=assistant").await, 1);
    assert_eq!(hits("&session=s2").await, 2);
    assert_eq!(hits("+-the").await, 0);
    assert_eq!(world.get(&format!("{BASE}/search?q=x&role=nobody")).await.0, StatusCode::BAD_REQUEST);
    let odd = "%22+OR+*+()+^+NEAR(a+b)+col:x+%00+-";
    assert_eq!(world.get(&format!("{BASE}/search?q={odd}")).await.0, StatusCode::OK);
}
