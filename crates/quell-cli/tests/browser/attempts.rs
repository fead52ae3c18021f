//! What an operator finds of each attempt of a run that programs and services have failed, and what is hidden of it.

use serde_json::json;

use crate::driver::until;
use crate::journey::journey;

const CONFIG: &str = r#"
[dashboard]
redact = ["*token*"]

[queues.bills]
window = "none"
handler = { exec = ["/bin/sh", "-c", "echo 'bill 7'; echo \"try $QUELL_ATTEMPT: no paper, api_token=s3cret\" >&2; exit 3"] }
retry = { base = "50ms", attempts = 2, jitter = 0 }
"#;

#[tokio::test]
async fn each_attempt_of_a_run_tells_what_it_started_its_exit_code_and_the_end_of_stderr() {
    journey(CONFIG, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        served.send("bills", "bill-7", json!({ "sum": 12 })).await;
        let run = until("it has failed for good", async || {
            let page = served.get("/v1/runs?queue=bills&state=failed").await;
            Some(page["items"].get(0)?["id"].as_str()?.to_owned())
        })
        .await;
        j.login(&format!("/ui/runs/{run}")).await;
        browser.becomes("return document.querySelectorAll('#attempts tbody tr').length === 2").await;
        browser.becomes("return document.querySelectorAll('details.told').length === 2").await;
        browser.reads("#told-1 summary", "/bin/sh with 2 arguments → exit code 3").await;
        browser.click("#told-1 summary").await;
        browser.reads("#told-1", "try 1: no paper, api_token=[redacted]").await;
        browser.reads("#told-1", "bill 7").await;
        browser.click("#told-2 summary").await;
        browser.reads("#told-2", "try 2: no paper").await;
        browser.reads("section[aria-labelledby=error]", "exit code 3").await;
        browser.becomes("return !document.body.textContent.includes('s3cret')").await;
        browser.readable().await;
        j.picture_from("#attempts", "attempts").await;
        browser.narrow().await;
        browser.fits().await;
    })
    .await;
}
