//! `[chat]` is changed while servers and workers run.

use super::bot::{Bot, Setup, message, texts};
use crate::hook::host::{CLOCKS_APART, millis, now};

const CUSTOMER: &str = "12025550110";
const REFUSED: &str = "what the file says cannot be used";

/// What the model was told before anything else, by the number of the request.
fn prompt(bot: &Bot, number: usize) -> String {
    bot.model.asked()[number].messages[0].content.clone()
}

fn setup(tenant: &str) -> Setup<'_> {
    Setup { tenant, ..Setup::default() }
}

#[test]
fn the_next_burst_follows_the_file_as_it_is_now() {
    let bot = Bot::new(&setup("prompt = \"Be kind.\""));
    // One takes messages in, the other answers: both follow the file.
    let (mut server, mut worker) = (bot.serve_only(), bot.work());
    server.takes(&message(CUSTOMER, "one"));
    bot.replies(1);
    assert_eq!(prompt(&bot, 0), "Be kind.");

    bot.configure(&setup("prompt = \"Be brief.\"\nmessage_reset_enabled = false").waiting(1_500));
    for process in [&mut server, &mut worker] {
        process.line("chat.changed");
    }
    let before = now();
    server.takes(&message(CUSTOMER, "two"));
    millis(400);
    server.takes(&message(CUSTOMER, "three"));
    bot.replies(2);
    assert_eq!(prompt(&bot, 1), "Be brief.");
    assert_eq!(texts(&bot.questions()[1]), ["two", "three"]);
    assert!(bot.model.asked()[1].at.as_millis() >= before + 1_500 - CLOCKS_APART);
    let entries = bot.entries(CUSTOMER);
    assert_eq!(
        (&entries[0]["about"]["fired_by"], &entries[2]["about"]["fired_by"]),
        (&"quiet".into(), &"fixed".into())
    );
    server.stop();
    worker.stop();
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing_and_is_told() {
    let bot = Bot::new(&setup("prompt = \"Be kind.\""));
    let mut server = bot.serve();
    let broken = [
        // No TOML at all, and a setting that nobody knows.
        "[chat.default",
        "[chat.default]\nwiat_time_before_replying_ms = 1\n",
    ];
    for (number, text) in broken.into_iter().enumerate() {
        bot.folder.write("quell.toml", text);
        server.line(REFUSED);
        server.takes(&message(CUSTOMER, "still there?"));
        bot.delivered(number + 1);
        assert_eq!(prompt(&bot, number), "Be kind.");
    }
    for tenant in ["prompt_file = \"nowhere.prompt\"", "prompt = \"Be rude.\"\ncontent_dedupe = 7"] {
        bot.configure(&setup(tenant));
        server.line(REFUSED);
    }
    server.takes(&message(CUSTOMER, "still there?"));
    bot.delivered(3);
    assert_eq!(prompt(&bot, 2), "Be kind.");
    // Mended, it is in force.
    bot.configure(&setup("prompt = \"Be brief.\""));
    server.line("chat.changed");
    server.takes(&message(CUSTOMER, "and now?"));
    bot.replies(4);
    assert_eq!(prompt(&bot, 3), "Be brief.");
    let log = server.stop();
    assert_eq!(log.named("chat.changed").len(), 1);
}
