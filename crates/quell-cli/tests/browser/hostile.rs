//! What anybody may send stands on pages as text: markup, control characters, endless words, marks that turn texts around.

use serde_json::json;

use crate::journey::journey;

const CONFIG: &str = r#"
[queues.orders]
window = "none"
handler = "pull"
max_payload = "4MiB"
"#;

#[tokio::test]
async fn whatever_keys_payloads_and_errors_hold_is_shown_as_text() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        let markup = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'`</textarea></svg>";
        let turned = "safe\u{202e}gpj.exe\u{2066}\u{200f}\u{1b}[31m\u{7}";
        let word = "W".repeat(1_000_000);
        let keys = [markup.to_owned(), turned.to_owned(), "k".repeat(500), "--help; $(reboot)".to_owned()];
        let mut runs = Vec::new();
        for key in &keys {
            let payload = json!({ markup: turned, turned: [markup, &word], "</pre>": { "deep": word } });
            served.send("orders", key, payload).await;
            let claim = served.claim("orders", "<b>w1</b>").await;
            let error = format!("{markup} {turned} {}", "E".repeat(2_000));
            runs.push(served.settle(&claim, json!({ "outcome": "failed", "error": error })).await);
        }
        for key in &keys {
            served.send("orders", key, json!(markup)).await;
        }
        j.login("/ui/lanes").await;
        let mut pages = vec!["/ui/lanes".to_owned(), "/ui/dead".to_owned(), "/ui/runs".to_owned()];
        pages.extend(runs.iter().flat_map(|run| [format!("/ui/runs/{run}"), format!("/ui/runs/{run}/edit")]));
        for page in &pages {
            j.open(page).await;
            harmless(browser).await;
        }
        for key in &keys {
            j.open("/ui/lanes").await;
            let find = format!(
                "[...document.querySelectorAll('#lanes th a')].find((a) => decodeURIComponent(a.pathname).endsWith({}))",
                json!(key)
            );
            browser.run(&format!("{find}.click()")).await;
            browser.is_at("/ui/lanes/orders/").await;
            harmless(browser).await;
        }
        // What turns a text around is told, not obeyed.
        j.open("/ui/lanes").await;
        browser.reads("#lanes", "safe⟨202e⟩gpj.exe").await;
        browser.narrow().await;
        for page in &pages {
            j.open(page).await;
            browser.fits().await;
        }
    })
    .await;
}

/// No script of a sender has run, nothing of it became an element, and the page is no wider than the window.
async fn harmless(browser: &crate::driver::Browser) {
    browser.becomes("return document.readyState === 'complete'").await;
    let found =
        "return [window.hacked ?? null, document.querySelectorAll('main script, main img, main b b').length,
                 /[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.querySelector('main').innerText)]";
    assert_eq!(browser.run(found).await, json!([null, 0, false]));
    browser.fits().await;
}
