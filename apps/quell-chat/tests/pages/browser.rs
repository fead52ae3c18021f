//! One journey through the pages in a real browser, which must not complain of anything.

use quell_chat::book::{About, Conversation, Entry, Role};
use reqwest::Client;
use serde_json::json;

use crate::driver::{self, Browser};
use crate::world::{NOW, World, conversation, entry, place};
use crate::{BASE, HOSTILE};

#[tokio::test]
async fn somebody_watches_a_conversation_and_finds_those_that_wait_for_a_person() {
    let world = World::new().await;
    let client = Client::builder().no_proxy().timeout(driver::PATIENCE).build().unwrap();
    let (_driver, _profile, browser) = Browser::start(&client).await;
    // In a task of its own, so that the browser is closed however it ends.
    let tasks = tokio::task::LocalSet::new();
    let journey = tasks.spawn_local(journey(world, browser.clone()));
    let journey = tasks.run_until(journey).await;
    browser.quit().await;
    journey.unwrap();
}

async fn journey(world: World, browser: Browser) {
    browser.open(&world.url).await;
    browser.click(&format!(".bar nav a[href='{BASE}']")).await;
    browser.reads("#live", "quell demo chat").await;
    browser.reads("#pulse", "live").await;

    // It appears by itself: the page is not loaded again.
    browser.run("window.mark = 'the same page'").await;
    let ana = place("", "12025550110");
    let one = Conversation { name: Some("Ana Souza".to_owned()), ..conversation(&ana, NOW) };
    let burst = About { is_aggregated: true, message_count: Some(2), ..About::default() };
    let asked = Entry { about: burst, ..entry(1, Role::Customer, &format!("Hi!\n[+1s] {HOSTILE}")) };
    world.write(&ana, &json!({ "text": "Hi!" })).await;
    world.record(&one, &[asked, entry(2, Role::Bot, "We do.")]).await;
    browser.reads("#conversations", "We do.").await;
    assert_eq!(browser.run("return window.mark").await, "the same page");

    browser.click("#conversations tbody th a").await;
    browser.reads("#title", "Ana Souza").await;
    browser.reads("#conversation", "2 messages in one burst").await;
    browser.reads("#waiting", "Hi!").await;
    assert_eq!(browser.run("return document.querySelectorAll('#live img, #live script').length").await, 0);

    // What was unfolded stays so while more comes.
    browser.click("#commands summary").await;
    browser.reads("#commands", "quell chat takeover wati:12025550110").await;
    world.desk.take_over(&ana, "ada").await.unwrap();
    world.write(&ana, &json!({ "text": "are you there?" })).await;
    browser.reads("#answers", "answered by a person").await;
    browser.reads("#reason", "taken over by ada").await;
    browser.reads("#waiting", "are you there?").await;
    browser.reads("#commands", "quell chat resume wati:12025550110").await;
    assert_eq!(browser.run("return document.querySelector('#commands').open").await, true);
    browser.fits().await;

    browser.click(".trail a").await;
    browser.click("select[name=answers] option[value=bot]").await;
    browser.click("#filter").await;
    browser.reads("#live", "No conversation is like that").await;
    browser.click("select[name=answers] option[value=human]").await;
    browser.click("#filter").await;
    browser.reads("#conversations", "Ana Souza").await;
    browser.fits().await;

    // On a telephone, too.
    browser.narrow().await;
    browser.fits().await;
    browser.click("#conversations tbody th a").await;
    browser.reads("#waiting", "are you there?").await;
    browser.fits().await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
