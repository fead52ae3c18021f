//! The conversations of a bot: from the message of a customer to the answer on the page.

use quell_chat::local::{LocalModel, LocalProviders, Script};

use crate::journey::journey;
use crate::served::PASSKEY;

#[tokio::test]
async fn a_conversation_appears_by_itself_and_is_read_with_its_one_answer() {
    let model = LocalModel::start(Script::fixed("We do buy coins.")).await.unwrap();
    let providers = LocalProviders::start().await.unwrap();
    let (url, accounts) = (model.base_url(), providers.settings());
    let config = format!(
        "[endpoints.whatsapp]\nscheme = \"wati\"\npath = \"/webhook\"\nsecret_env = \"WATI_PASSKEY\"\n\
         [chat.default]\nwait_time_before_replying_ms = 300\ntyping_indicator_enabled = false\n\
         natural_delays_enabled = false\nmodel = {{ name = \"local\", url = \"{url}\" }}\n{accounts}"
    );
    journey(&config, async |j| {
        let (browser, served) = (&j.browser, &j.served);
        j.login("/").await;
        browser.click(".bar nav a[href='/ui/app/chat']").await;
        browser.is_at("/ui/app/chat").await;
        browser.reads("#pulse", "live").await;
        browser.run("window.mark = 'the same page'").await;
        let message = serde_json::json!({ "waId": "12025550110", "text": "do you buy <b>coins</b>?", "passkey": PASSKEY });
        served.deliver("/webhook", &message).await;
        browser.reads("#conversations", "We do buy coins.").await;
        assert_eq!(browser.run("return window.mark").await, "the same page");
        browser.readable().await;
        browser.click("#conversations tbody th a").await;
        browser.reads("#conversation", "do you buy <b>coins</b>?").await;
        browser.reads("#conversation", "We do buy coins.").await;
        browser.readable().await;
        browser.narrow().await;
        browser.fits().await;
    })
    .await;
    assert_eq!(providers.delivered().len(), 1, "one answer");
}
