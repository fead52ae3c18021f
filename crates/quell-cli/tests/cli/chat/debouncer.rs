//! The scenarios of a system that debounced messages in Redis, one second for each of its minutes, and its holes.

use std::time::Duration;

use redis::Commands;

use super::bot::{
    Bot, Kind, Log, Server, Setup, identified, key, meanwhile, message, seconds, texts, thinking,
};
use crate::hook::host::{CLOCKS_APART, millis, now, until};
use crate::support::items;

const CUSTOMER: &str = "5511999998888";

fn bot(wait: u64) -> Bot {
    Bot::new(&Setup::on(Kind::Redis).waiting(wait))
}

/// When the model was asked, in milliseconds.
fn asked_at(bot: &Bot, number: usize) -> i64 {
    bot.model.asked()[number].at.as_millis()
}

#[test]
fn basic_debouncing_resets_timer() {
    let bot = bot(1_200);
    let server = bot.serve();
    let mut last = 0;
    // Longer than one window altogether.
    for text in ["one", "two", "three", "four"] {
        millis(400);
        last = now();
        server.takes(&message(CUSTOMER, text));
    }
    bot.replies(1);
    assert_eq!(texts(&bot.questions()[0]), ["one", "two", "three", "four"]);
    assert!(asked_at(&bot, 0) >= last + 1_200 - CLOCKS_APART, "a whole window after the last one");
    assert_eq!(server.stop().leases(CUSTOMER), [4]);
}

#[test]
fn nothing_at_sixty_seconds_and_one_run_at_seventy() {
    let bot = bot(1_000);
    let servers = [bot.serve(), bot.serve()];
    servers[0].takes(&message(CUSTOMER, "Message A"));
    millis(1_000 / 6);
    let second = now();
    servers[1].takes(&message(CUSTOMER, "Message B"));
    bot.replies(1);
    assert_eq!(bot.questions(), ["Message A\n[+0s] Message B"]);
    assert!(asked_at(&bot, 0) >= second + 1_000 - CLOCKS_APART);
    let log = Log::of(servers.into());
    assert_eq!((log.met(CUSTOMER), log.leases(CUSTOMER)), (vec!["opened".into(), "waiting".into()], vec![2]));
}

#[test]
fn nothing_at_sixty_seconds_and_one_run_at_seventy_at_their_real_length() {
    // On a store whose clock can be moved.
    let bot = Bot::new(&Setup::default().waiting(60_000));
    let servers = [bot.serve(), bot.serve()];
    servers[0].takes(&message(CUSTOMER, "Message A"));
    bot.move_clock(10);
    servers[1].takes(&message(CUSTOMER, "Message B"));
    bot.move_clock(50);
    meanwhile(Duration::from_secs(1), || bot.questions().is_empty(), "at sixty seconds it waits");
    bot.move_clock(10);
    bot.replies(1);
    assert_eq!(bot.questions(), ["Message A\n[+10s] Message B"]);
    assert_eq!(bot.number("SELECT count(*) FROM run WHERE claimed_at >= first_at + 70000"), 1);
    Log::of(servers.into());
}

#[test]
fn single_message_processing() {
    let bot = bot(300);
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hello"));
    let replies = bot.replies(1);
    assert_eq!(bot.questions(), ["Hello"]);
    assert_eq!((replies[0].to.as_str(), replies[0].text.as_str()), (CUSTOMER, "You said: Hello"));
    let about = &bot.entries(CUSTOMER)[0]["about"];
    assert_eq!((&about["message_count"], &about["fired_by"]), (&1.into(), &"quiet".into()), "{about}");
    server.stop();
}

#[test]
fn rapid_succession_scenario() {
    let bot = bot(1_500);
    let server = bot.serve();
    let all: Vec<String> = (0..12).map(|number| format!("line {number}")).collect();
    for text in &all {
        server.takes(&message(CUSTOMER, text));
    }
    bot.replies(1);
    assert_eq!(texts(&bot.questions()[0]), all);
    let about = &bot.entries(CUSTOMER)[0]["about"];
    assert_eq!((&about["message_count"], &about["is_aggregated"]), (&12.into(), &true.into()), "{about}");
    server.stop();
}

#[test]
fn webhook_retry_idempotency() {
    let bot = bot(800);
    let servers = [bot.serve(), bot.serve()];
    servers[0].takes(&identified(CUSTOMER, "Hello", "wamid.1"));
    servers[1].takes(&identified(CUSTOMER, "Hello", "wamid.1"));
    servers[0].takes(&identified(CUSTOMER, "I mean", "wamid.2"));
    bot.replies(1);
    assert_eq!(texts(&bot.questions()[0]), ["Hello", "I mean"]);
    // Also when it was answered long ago.
    servers[1].takes(&identified(CUSTOMER, "Hello", "wamid.1"));
    meanwhile(
        Duration::from_millis(1_200),
        || bot.model.asked().len() == 1,
        "an old message was answered again",
    );
    bot.replies(1);
    Log::of(servers.into());
}

#[test]
fn webhook_retry_idempotency_without_an_id() {
    let setup = Setup { tenant: "content_dedupe = true", ..Setup::on(Kind::Redis) };
    let bot = Bot::new(&setup.waiting(800));
    let servers = [bot.serve(), bot.serve()];
    for number in 0..4 {
        servers[number % 2].takes(&message(CUSTOMER, "Hello"));
    }
    bot.replies(1);
    assert_eq!(bot.questions(), ["Hello"]);
    let mut met = Log::of(servers.into()).met(CUSTOMER);
    met.sort_unstable();
    assert_eq!(met, ["duplicate", "duplicate", "duplicate", "opened"]);
}

#[test]
fn message_timestamps_in_aggregation() {
    let bot = bot(2_500);
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hello"));
    millis(1_100);
    server.takes(&message(CUSTOMER, "I mean"));
    millis(1_000);
    server.takes(&message(CUSTOMER, "Hi there"));
    bot.replies(1);
    let question = bot.questions().remove(0);
    assert_eq!(texts(&question), ["Hello", "I mean", "Hi there"]);
    assert!(question.starts_with("Hello\n[+"), "the first as it is: {question}");
    let times = seconds(&question);
    // Whole seconds, rounded down; a busy machine may make them more.
    assert!(times.len() == 2 && times[0] >= 1 && times[1] >= 2, "{question}");
    server.stop();
}

#[test]
fn cleanup_after_processing() {
    let bot = bot(300);
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hello"));
    server.takes(&message(CUSTOMER, "I mean"));
    bot.replies(1);
    assert!(items(&bot.json(&["lanes"])).is_empty());
    let doctor = bot.json(&["doctor"]);
    let queues = doctor["queues"].as_array().unwrap();
    let chat = queues.iter().find(|queue| queue["queue"] == "chat").unwrap();
    for (name, count) in
        [("accepted", 2), ("succeeded", 2), ("buffered", 0), ("in_flight", 0), ("delayed", 0)]
    {
        assert_eq!(chat[name], count, "{name}: {chat}");
    }
    assert_eq!(bot.json(&["chat", "show", CUSTOMER])["waiting"], serde_json::json!([]));
    server.stop();
}

#[test]
fn hole_duplicate_webhook_bumps_the_sequence_and_nobody_answers() {
    let bot = bot(1_000);
    let servers = [bot.serve(), bot.serve()];
    let first = now();
    servers[0].takes(&identified(CUSTOMER, "Hello", "wamid.1"));
    // Again and again while it waits: each would have been the newest, and each would have been waited for.
    for number in 0..6 {
        millis(100);
        servers[number % 2].takes(&identified(CUSTOMER, "Hello", "wamid.1"));
    }
    bot.replies(1);
    assert_eq!(bot.questions(), ["Hello"]);
    assert!(asked_at(&bot, 0) >= first + 1_000 - CLOCKS_APART);
    let log = Log::of(servers.into());
    let met = log.met(CUSTOMER);
    assert_eq!((met.len(), met.iter().filter(|met| *met == "duplicate").count()), (7, 6), "{met:?}");
    let numbers: Vec<_> = log.named("event.buffered").iter().map(|line| line["seq"].as_u64()).collect();
    assert!(numbers.iter().all(|seq| *seq == numbers[0]), "one message has one number: {numbers:?}");
    assert_eq!(log.leases(CUSTOMER), [1]);
}

#[test]
fn hole_same_text_sent_twice_on_purpose_is_swallowed() {
    let bot = bot(600);
    let server = bot.serve();
    // With ids of their own, and without any.
    server.takes(&identified(CUSTOMER, "ok", "wamid.1"));
    server.takes(&identified(CUSTOMER, "ok", "wamid.2"));
    bot.replies(1);
    assert_eq!(texts(&bot.questions()[0]), ["ok", "ok"]);
    server.takes(&message(CUSTOMER, "ok"));
    server.takes(&message(CUSTOMER, "ok"));
    bot.replies(2);
    assert_eq!(texts(&bot.questions()[1]), ["ok", "ok"]);
    server.stop();
}

#[test]
fn hole_buffer_expires_after_five_minutes() {
    let bot = bot(300);
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hello"));
    bot.replies(1);
    bot.quell(&["chat", "pause", CUSTOMER]).ok();
    server.takes(&message(CUSTOMER, "are you there?"));
    server.stop();
    // Nobody can wait five minutes here; but Redis forgets only what it was told to.
    let url = bot.store.clone().unwrap();
    let (base, own) = url.split_once("prefix=").unwrap();
    let client = redis::Client::open(base.trim_end_matches(['?', '&'])).unwrap();
    let mut connection = client.get_connection().unwrap();
    let keys: Vec<String> = connection.keys(format!("{own}:*")).unwrap();
    assert!(keys.len() > 3, "{keys:?}");
    for name in &keys {
        let left: i64 = connection.pttl(name).unwrap();
        assert_eq!(left, -1, "{name} would be gone after {left} ms");
    }
    // It is answered whenever somebody wants it to be.
    let server = bot.serve();
    bot.quell(&["chat", "resume", CUSTOMER]).ok();
    bot.replies(2);
    assert_eq!(bot.questions()[1..], ["are you there?"]);
    server.stop();
}

#[test]
fn what_waits_for_an_hour_is_still_there() {
    // On a store whose clock can be moved: twelve times as long as the older buffer lived.
    let bot = Bot::new(&Setup::default());
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hello"));
    bot.replies(1);
    bot.quell(&["chat", "pause", CUSTOMER]).ok();
    server.takes(&message(CUSTOMER, "are you there?"));
    bot.move_clock(3_600);
    server.takes(&message(CUSTOMER, "hello?"));
    bot.quell(&["chat", "resume", CUSTOMER]).ok();
    bot.replies(2);
    assert_eq!(bot.questions()[1..], ["are you there?\n[+3600s] hello?"]);
    server.stop();
}

#[test]
fn hole_local_clock_against_stored_time() {
    // No clock but the store's decides: what the sender's own clock says is an hour off in both directions here.
    let bot = bot(1_000);
    let servers = [bot.serve(), bot.serve()];
    let by = |text: &str, hours: i64| {
        let stamp = now() / 1_000 + hours * 3_600;
        message(CUSTOMER, text).replace(",\"passkey\"", &format!(",\"timestamp\":\"{stamp}\",\"passkey\""))
    };
    servers[0].takes(&by("Hello", 1));
    let last = now();
    servers[1].takes(&by("I mean", -1));
    bot.replies(1);
    let question = bot.questions().remove(0);
    assert_eq!(texts(&question), ["Hello", "I mean"], "in the order in which they came");
    assert!(seconds(&question)[0] < 60, "{question}");
    assert!(asked_at(&bot, 0) >= last + 1_000 - CLOCKS_APART);
    Log::of(servers.into());
}

#[test]
fn hole_waiter_of_the_newest_message_dies() {
    let bot = bot(1_000);
    let (first, second) = (bot.serve(), bot.serve());
    first.takes(&message(CUSTOMER, "Hello"));
    second.takes(&message(CUSTOMER, "I mean"));
    second.kill();
    bot.replies(1);
    assert_eq!(texts(&bot.questions()[0]), ["Hello", "I mean"]);
    assert_eq!(first.stop().leases(CUSTOMER), [2]);
}

#[test]
fn hole_message_during_the_model_call_starts_a_second_call() {
    let bot = bot(200);
    bot.model.follow(thinking(1_500));
    let servers = [bot.serve(), bot.serve()];
    servers[0].takes(&message(CUSTOMER, "Hello"));
    bot.asked(1);
    servers[1].takes(&message(CUSTOMER, "I mean"));
    servers[0].takes(&message(CUSTOMER, "Hi there"));
    let replies = bot.replies(2);
    let questions = bot.questions();
    assert_eq!((questions.len(), texts(&questions[1])), (2, vec!["I mean", "Hi there"]));
    assert!(asked_at(&bot, 1) >= replies[0].at.as_millis(), "not before the first was answered");
    assert_eq!(Log::of(servers.into()).met(CUSTOMER), ["opened", "running", "running"]);
}

#[test]
fn hole_sequence_restarts_after_cleanup() {
    let bot = bot(300);
    let server = bot.serve();
    for burst in 0..3 {
        server.takes(&message(CUSTOMER, &format!("burst {burst}")));
        bot.replies(burst + 1);
    }
    // Also when all processes are gone and nothing waits.
    let mut buffered = server.stop().named("event.buffered");
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "burst 3"));
    bot.replies(4);
    buffered.extend(server.stop().named("event.buffered"));
    let numbers: Vec<u64> = buffered.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), 4);
    assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
    assert_eq!(bot.questions(), ["burst 0", "burst 1", "burst 2", "burst 3"]);
}

#[test]
fn a_bot_without_its_redis_says_so_at_the_start() {
    let bot = bot(300);
    let mut command = bot.command(&["serve"]);
    command.env("QUELL_STORE", "redis://127.0.0.1:1").env("QUELL_WORKER_START_TIMEOUT", "100ms");
    crate::support::Answer::of(&mut command).exits(5).complains("127.0.0.1:1");
}

#[test]
fn several_customers_wait_beside_each_other() {
    let bot = bot(1_500);
    let servers: Vec<Server> = (0..2).map(|_| bot.serve()).collect();
    let customers: Vec<String> = (0..6).map(|number| format!("551199999000{number}")).collect();
    for text in ["Hello", "I mean"] {
        for (number, customer) in customers.iter().enumerate() {
            servers[number % 2].takes(&message(customer, text));
        }
    }
    let replies = bot.replies(6);
    for customer in &customers {
        assert_eq!(replies.iter().filter(|reply| reply.to == *customer).count(), 1);
        until("the book has both sides", || bot.said(&key(customer)).len() == 2);
    }
    Log::of(servers);
}
