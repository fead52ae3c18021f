//! The pages around the lanes: the overview and its alarm, the playground, sources, schedules, the audit trail, and those of
//! applications in the same frame.

use serde_json::json;

use crate::journey::{Journey, journey};

const CONFIG: &str = r#"
[queues.orders]
window = { quiet = "1h", max_wait = "2h" }
handler = "pull"

[sources.ebay]
rate_limit_per_minute = 60
burst = 5

[schedules.nightly]
cron = "0 3 * * *"
queue = "orders"
key = "daily"
payload = { report = true }
"#;

/// Puts a text into a field as somebody does who types it, whatever stood there.
async fn fill(j: &Journey, selector: &str, text: &str) {
    let script = format!(
        "const field = document.querySelector({selector:?}); field.value = {text:?}; \
         field.dispatchEvent(new Event('input', {{ bubbles: true }}));"
    );
    j.browser.run(&script).await;
}

#[tokio::test]
async fn the_overview_says_how_it_goes_and_alarms_when_an_event_is_missing() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for key in ["1", "2", "3"] {
            served.send("orders", key, json!({ "text": "hello" })).await;
        }
        served.post("/v1/lanes/orders/1/flush", json!({})).await;
        let claim = served.claim("orders", "w1").await;
        served.settle(&claim, json!({ "outcome": "succeeded" })).await;
        served.post("/v1/lanes/orders/2/pause", json!({})).await;

        j.login("/").await;
        let terms = browser.reads("#terms", "1 succeeded").await;
        let terms = terms.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(terms.starts_with("3 accepted =") && terms.contains("2 buffered"), "{terms}");
        let states = browser.reads("#states", "paused").await;
        assert!(states.contains("1 collecting") && states.contains("1 paused"), "{states}");
        browser.reads("#rates", "events per second").await;
        // The second look of the server at its totals draws the first line.
        browser.becomes("return document.querySelectorAll('#rates .spark path.line').length > 0").await;
        browser.reads("section[aria-labelledby=workers]", "ago").await;
        browser.reads("section[aria-labelledby=sources]", "closed").await;
        browser.reads("section[aria-labelledby=store]", "survive a power cut").await;
        j.picture("overview").await;

        // Somebody changes a counter behind the store's back. The page tells it without being loaded again.
        browser.run("window.mark = 'the same page'").await;
        let file = rusqlite::Connection::open(served.file("quell.db")).unwrap();
        file.busy_timeout(crate::driver::PATIENCE).unwrap();
        file.execute("UPDATE queue SET accepted = accepted + 1 WHERE name = 'orders'", []).unwrap();
        drop(file);
        browser.reads("[role=alert]", "1 event missing").await;
        browser.reads("#terms", "≠").await;
        assert_eq!(browser.run("return window.mark").await, "the same page");
        browser.readable().await;
    })
    .await;
}

#[tokio::test]
async fn a_burst_is_drawn_the_window_is_moved_and_the_settings_are_taken() {
    journey(CONFIG, async |j| {
        let browser = &j.browser;
        j.login("/ui/playground").await;
        browser.reads("#picture", "11 events → 3 runs").await;
        j.picture("playground").await;
        fill(j, "#quiet", "5s").await;
        browser.reads("#picture", "11 events → 2 runs").await;
        browser.reads("#fired", "the cap").await;
        browser.reads("#settings", r#"quiet = "5s""#).await;
        browser.becomes("return location.search.includes('quiet=5s')").await;
        // A press in the middle of the picture is an arrival there.
        browser.click("#timeline").await;
        browser.reads("#picture", "12 events").await;
        browser.becomes("return document.getElementById('arrivals').value.split(' ').length === 12").await;
        browser.click("#copy").await;
        browser
            .becomes("return ['Copied', 'Selected'].includes(document.getElementById('copy').textContent)")
            .await;
        // What is wrong is told where the result stood, and the form stays.
        fill(j, "#max_wait", "1s").await;
        browser.reads("#rehearsal", "shorter than quiet").await;
        browser.becomes("return document.getElementById('max_wait').value === '1s'").await;
        // The whole trial is in its address.
        j.open("/ui/playground?arrivals=0+1+9&quiet=2s&max_wait=10s").await;
        browser.reads("#picture", "3 events → 2 runs").await;
        browser.click("#clear").await;
        browser.reads("#picture", "0 events → 0 runs").await;
        browser.narrow().await;
        browser.fits().await;
    })
    .await;
}

#[tokio::test]
async fn the_playground_needs_no_script() {
    journey(CONFIG, async |j| {
        let browser = &j.browser;
        browser.without_scripts().await;
        j.login("/ui/playground?arrivals=0+1+9&quiet=2s&max_wait=10s").await;
        browser.reads("#picture", "3 events → 2 runs").await;
        browser.type_into("#arrivals", " 20").await;
        browser.click("#try").await;
        browser.reads("#picture", "4 events → 3 runs").await;
    })
    .await;
}

#[tokio::test]
async fn a_recorded_lane_is_replayed_through_other_settings() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        for n in 0..3 {
            served.send("orders", "order 7/a", json!({ "n": n })).await;
        }
        served.post("/v1/lanes/orders/order%207%2Fa/flush", json!({})).await;
        let claim = served.claim("orders", "w1").await;
        served.settle(&claim, json!({ "outcome": "succeeded" })).await;
        j.login("/ui/lanes/orders/order%207%2Fa").await;
        browser.click("#replay").await;
        browser.reads("#picture", "3 events → 1 run").await;
        browser.reads("#rehearsal", "it was 1 run").await;
        let usual = browser.run("return document.getElementById('quiet').value").await;
        assert_eq!(usual, "1h", "the trial begins with the settings of its queue");
        fill(j, "#window", "none").await;
        browser.reads("#fired", "there is no window").await;
        browser.reads("#settings", "[queues.orders]").await;
        j.picture("replay").await;
        j.open("/ui/playground?queue=orders&key=nobody").await;
        browser.reads("main", "nothing is known of orders/nobody").await;
        browser.forgive("404").await;
    })
    .await;
}

#[tokio::test]
async fn a_source_is_disabled_seen_on_the_overview_enabled_and_reset() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        j.login("/ui/sources").await;
        let row = "#source-ebay";
        let shown = browser.reads(row, "closed").await;
        assert!(
            shown.contains("5 of 5") && shown.contains("0 of 5") && shown.contains("60 per minute"),
            "{shown}"
        );
        j.picture("sources").await;
        browser.type_into("#why-text", "they asked for it").await;
        browser.click("button[aria-label='Disable ebay']").await;
        browser.reads("#live .note", "Disabled").await;
        browser.reads(row, "disabled").await;
        browser.reads(row, "changed by token:ops: they asked for it").await;
        j.open("/").await;
        browser.reads("section[aria-labelledby=verdict]", "Source ebay is disabled").await;
        browser.click("section[aria-labelledby=verdict] a[href='/ui/sources']").await;
        browser.click("button[aria-label='Enable ebay']").await;
        browser.reads("#live .note", "Enabled").await;
        browser.click("button[aria-label='Reset ebay']").await;
        browser.reads("#live .note", "Reset").await;
        assert_eq!(served.get("/v1/sources/ebay").await["enabled"], true);

        // All of it is in the trail, with who and why.
        browser.click("#hands").await;
        browser.is_at("/ui/audit").await;
        browser.becomes("return document.querySelectorAll('#audit tbody tr').length === 3").await;
        let first = browser.reads("#audit tbody tr:last-child", "source disabled").await;
        assert!(first.contains("token:ops") && first.contains("they asked for it"), "{first}");
        browser.click("#audit tbody tr:first-child a").await;
        browser.is_at("/ui/sources").await;
    })
    .await;
}

#[tokio::test]
async fn a_schedule_shows_its_next_fire_and_only_an_administrator_removes_it() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        j.login_with(&served.token("hand", "operate").await, "/ui/schedules").await;
        let shown = browser.reads("#schedules tbody", "0 3 * * *").await;
        assert!(
            shown.contains("in ") && shown.contains("orders / daily") && shown.contains("UTC"),
            "{shown}"
        );
        j.picture("schedules").await;
        assert_eq!(browser.run("return document.querySelectorAll('main button').length").await, 0);
        let asked =
            "return fetch('/ui/schedules/config.nightly/remove', { method: 'POST' }).then((r) => r.status)";
        assert_eq!(browser.run(asked).await, 403, "the door is not only the missing button");
        browser.forgive("403").await;
        browser.click("#logout").await;
        browser.is_at("/ui/login").await;
        j.login("/ui/schedules").await;
        browser.click("#schedules tbody summary").await;
        browser.click("#schedules tbody button").await;
        browser.reads("#live .note", "Removed").await;
        browser.reads("#live", "No schedules").await;
        assert_eq!(served.get("/v1/schedules").await["items"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn the_audit_trail_names_who_did_it_and_goes_back_page_by_page() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        // One record each: more than a page.
        for n in 0..60 {
            served.send("orders", &format!("key-{n}"), json!({})).await;
            served.post(&format!("/v1/lanes/orders/key-{n}/flush"), json!({})).await;
        }
        j.login("/ui/audit").await;
        browser.reads("#audit tbody tr:first-child", "flushed").await;
        let newest = browser.reads("#audit tbody tr:first-child", "key-59").await;
        assert!(newest.contains("ops"), "{newest}");
        j.picture("audit").await;
        browser.click(".pages a").await;
        browser.reads("#audit", "key-0").await;
        browser.type_into("input[name=key]", "key-7").await;
        browser.click(".filters button").await;
        browser.becomes("return document.querySelectorAll('#audit tbody tr').length === 1").await;
        browser.reads("#audit tbody", "key-7").await;
        browser.click("#audit tbody a").await;
        browser.reads("#key", "key-7").await;
    })
    .await;
}

#[tokio::test]
async fn every_page_is_readable_light_and_dark_and_fits_a_small_telephone() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("orders", "a-key-that-is-long-enough-to-be-wider-than-a-telephone-is", json!({})).await;
        served.post("/v1/queues/orders/pause", json!({})).await;
        j.login("/").await;
        browser.narrow().await;
        for scheme in ["light", "dark"] {
            browser.prefers(scheme).await;
            for path in
                ["/", "/ui/playground", "/ui/sources", "/ui/schedules", "/ui/audit", "/ui/app/transcripts"]
            {
                j.open(path).await;
                browser.readable().await;
                browser.fits().await;
            }
            j.open("/").await;
            browser.reads("#verdict", "Needs a look").await;
            j.picture(&format!("overview-{scheme}-small")).await;
        }
        // What is not in the bar is behind one word, by pointer and by keyboard.
        browser.click(".more summary").await;
        browser.fits().await;
        browser.click(".menu a[href='/ui/audit']").await;
        browser.is_at("/ui/audit").await;
        browser.reads(".more summary", "Audit").await;
    })
    .await;
}

#[tokio::test]
async fn a_session_is_found_by_its_words_and_applications_share_the_frame() {
    let config = format!("{CONFIG}\n[prices]\n");
    journey(&config, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        let line = json!({
            "type": "user", "uuid": "11111111-1111-4111-8111-111111111111", "sessionId": "s1", "cwd": "/home/ada/shop",
            "timestamp": "2026-01-01T00:00:00Z", "isSidechain": false,
            "message": { "role": "user", "content": "look for the needle <b>here</b>" }
        });
        std::fs::create_dir_all(served.file("said")).unwrap();
        std::fs::write(served.file("said/s1.jsonl"), format!("{line}\n")).unwrap();
        served.quell(&["sessions", "import", "said", "--store", "sqlite:quell.db"]);
        j.login("/").await;
        browser.click(".bar nav a[href='/ui/app/transcripts']").await;
        browser.type_into("#words", "needle").await;
        browser.click("#search").await;
        browser.reads("#hits mark", "needle").await;
        browser.readable().await;
        browser.click(".bar nav a[href='/ui/app/prices']").await;
        browser.is_at("/ui/app/prices").await;
        browser.reads(".bar nav a[aria-current]", "Prices").await;
        browser.readable().await;
        browser.narrow().await;
        browser.fits().await;
        browser.click(".more summary").await;
        browser.click(".menu a[href='/ui/app/transcripts']").await;
        browser.is_at("/ui/app/transcripts").await;
        browser.fits().await;
    })
    .await;
}
