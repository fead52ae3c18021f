//! The scenarios of a system that locked each customer in an SQLite table, with several worker processes, and its holes.
//!
//! Its window was 65 s and its gaps were 2 s; here both are shorter in the same order.

use std::time::Duration;

use quell::clock::Chance;
use rustix::process::Signal;
use serde_json::Value;

use super::bot::{
    Bot, JSON, Kind, Log, Server, Setup, echo, identified, key, meanwhile, message, texts, thinking,
};
use crate::hook::host::{CLOCKS_APART, Watch, millis, now, until};
use crate::support::items;

const CUSTOMER: &str = "50376819621";

/// Times of the model and of us, in milliseconds.
fn at(asked: &quell_chat::local::Asked) -> i64 {
    asked.at.as_millis()
}

/// One call with everything, one reply, one lease; the first message opened the window and the others only waited in it.
fn assert_one_answer(bot: &Bot, log: &Log, messages: &[&str]) {
    let questions = bot.questions();
    assert_eq!(questions.len(), 1, "{questions:?}");
    assert_eq!(texts(&questions[0]), messages);
    let met = log.met(CUSTOMER);
    assert_eq!(met.iter().filter(|met| *met == "opened").count(), 1, "{met:?}");
    assert_eq!(met.iter().filter(|met| *met == "waiting").count(), messages.len() - 1, "{met:?}");
    assert_eq!(log.leases(CUSTOMER), [u64::try_from(messages.len()).unwrap()]);
    assert!(log.is_calm(), "somebody complained");
}

#[test]
fn rapid_same_customer_messages() {
    let bot = Bot::new(&Setup::default().waiting(1_500));
    let server = bot.serve_with(4);
    for number in 1..=3 {
        let body = message(CUSTOMER, &format!("Message {number}"));
        assert_eq!(server.address.post("/webhook", &[JSON], &body), Some(200));
        millis(if number < 3 { 300 } else { 0 });
    }
    let replies = bot.replies(1);
    assert_eq!(replies[0].to, CUSTOMER);
    assert_one_answer(&bot, &server.stop(), &["Message 1", "Message 2", "Message 3"]);
}

#[test]
fn rapid_same_customer_messages_to_four_servers() {
    rapid_messages_to_servers(Kind::Sqlite, 4);
}

#[test]
fn rapid_same_customer_messages_on_postgresql() {
    rapid_messages_to_servers(Kind::Postgres, 2);
}

/// Each message is taken in by another process than the one before.
fn rapid_messages_to_servers(kind: Kind, count: usize) {
    let bot = Bot::new(&Setup::on(kind).waiting(1_500));
    let servers: Vec<Server> = (0..count).map(|_| bot.serve()).collect();
    for number in 1..=3 {
        servers[number % count].takes(&message(CUSTOMER, &format!("Message {number}")));
        millis(if number < 3 { 300 } else { 0 });
    }
    bot.replies(1);
    assert_one_answer(&bot, &Log::of(servers), &["Message 1", "Message 2", "Message 3"]);
}

#[test]
fn multiple_customers_concurrently() {
    let bot = Bot::new(&Setup::default());
    bot.model.follow(thinking(4_000));
    let server = bot.serve_with(4);
    let customers: Vec<String> = (1..=4).map(|number| format!("5037681962{number}")).collect();
    let address = &server.address;
    std::thread::scope(|scope| {
        for customer in &customers {
            scope.spawn(move || address.takes(&message(customer, "Test")));
        }
    });
    let replies = bot.replies(4);
    let asked = bot.model.asked();
    assert_eq!(asked.len(), 4, "{asked:#?}");
    let first_reply = replies.iter().map(|reply| reply.at.as_millis()).min().unwrap();
    assert!(asked.iter().all(|asked| at(asked) < first_reply), "all four were under way at once");
    let log = server.stop();
    for customer in &customers {
        assert_eq!(replies.iter().filter(|reply| reply.to == *customer).count(), 1, "{replies:#?}");
        assert_eq!((log.met(customer), log.leases(customer)), (vec!["opened".to_owned()], vec![1]));
    }
}

/// A customer whose worker died while the model was thinking, with one more message that waits. The lease is far from its end.
fn orphaned(bot: &Bot) {
    let server = bot.serve();
    bot.model.follow(thinking(600_000));
    server.takes(&message(CUSTOMER, "Hola"));
    bot.asked(1);
    server.takes(&message(CUSTOMER, "Quiero reservar"));
    server.kill();
    bot.model.follow(echo());
}

/// The lock of process 99999, fifteen minutes old, as it was put into the older system's database by hand.
fn age_the_lease(bot: &Bot) {
    let changed = "BEGIN IMMEDIATE;
         UPDATE worker SET identity = 'watibot4:99999:1'
           WHERE id = (SELECT r_worker FROM lane WHERE lease_at IS NOT NULL);
         UPDATE lane SET r_claimed_at = r_claimed_at - 900000, r_heartbeat_at = r_heartbeat_at - 900000,
             r_lease_until = r_lease_until - 900000, lease_at = lease_at - 900000 WHERE lease_at IS NOT NULL;
         UPDATE queue SET next_at = (SELECT min(lease_at) FROM lane WHERE queue_id = queue.id)
           WHERE id = (SELECT queue_id FROM lane WHERE lease_at IS NOT NULL);
         COMMIT;";
    bot.database().execute_batch(changed).unwrap();
}

fn is_the_lost_lease(line: &Value) -> bool {
    line["prior_worker"] == "watibot4" && line["prior_pid"] == 99_999 && line["key"] == key(CUSTOMER)
}

#[test]
fn stale_lock_recovery() {
    let bot = Bot::new(&Setup { lease: "60s", ..Setup::default() });
    orphaned(&bot);
    age_the_lease(&bot);
    let server = bot.serve();
    bot.replies(2);
    assert_eq!(bot.questions()[1..], ["Hola", "Quiero reservar"]);
    let log = server.stop();
    let swept = log.named("startup.swept");
    assert_eq!((swept.len(), &swept[0]["count"]), (1, &1.into()), "{swept:?}");
    let reclaimed = log.named("lease.reclaimed");
    assert!(reclaimed.len() == 1 && is_the_lost_lease(&reclaimed[0]), "{reclaimed:?}");
}

#[test]
fn stale_lock_recovery_without_a_restart() {
    let bot = Bot::new(&Setup { lease: "60s", ..Setup::default() });
    orphaned(&bot);
    let server = bot.serve();
    age_the_lease(&bot);
    bot.replies(2);
    assert_eq!(bot.questions()[1..], ["Hola", "Quiero reservar"]);
    let log = server.stop();
    let swept = log.named("startup.swept");
    assert_eq!((swept.len(), &swept[0]["count"]), (1, &0.into()), "{swept:?}");
    let reclaimed = log.named("lease.reclaimed");
    assert!(reclaimed.len() == 1 && is_the_lost_lease(&reclaimed[0]), "{reclaimed:?}");
}

#[test]
fn end_to_end_with_a_fixed_window() {
    let setup = Setup { tenant: "message_reset_enabled = false", ..Setup::default() };
    let bot = Bot::new(&setup.waiting(2_000));
    let servers: Vec<Server> = (0..3).map(|_| bot.serve()).collect();
    let first = now();
    servers[0].takes(&message(CUSTOMER, "Hola"));
    millis(300);
    servers[1].takes(&message(CUSTOMER, "Quiero reservar"));
    bot.replies(1);
    let third = now();
    servers[2].takes(&message(CUSTOMER, "Gracias"));
    bot.replies(2);
    let asked = bot.model.asked();
    assert_eq!(texts(&bot.questions()[0]), ["Hola", "Quiero reservar"]);
    assert_eq!(bot.questions()[1..], ["Gracias"]);
    assert!(at(&asked[0]) >= first + 2_000 - CLOCKS_APART);
    assert!(at(&asked[1]) >= third + 2_000 - CLOCKS_APART, "a window of its own");
    let entries = bot.entries(CUSTOMER);
    let fired: Vec<&Value> =
        entries.iter().filter(|entry| entry["role"] == "customer").map(|e| &e["about"]["fired_by"]).collect();
    assert_eq!(fired, ["fixed", "fixed"], "{entries:#?}");
    let log = Log::of(servers);
    assert_eq!(log.met(CUSTOMER), ["opened", "waiting", "opened"]);
    assert_eq!(log.leases(CUSTOMER), [2, 1]);
}

#[test]
fn end_to_end_at_its_real_length() {
    let bot =
        Bot::new(&Setup { tenant: "message_reset_enabled = false", ..Setup::default() }.waiting(65_000));
    let servers: Vec<Server> = (0..3).map(|_| bot.serve()).collect();
    servers[0].takes(&message(CUSTOMER, "Hola"));
    bot.move_clock(5);
    servers[1].takes(&message(CUSTOMER, "Quiero reservar"));
    bot.move_clock(50);
    meanwhile(Duration::from_millis(500), || bot.questions().is_empty(), "at 00:55 it waits");
    bot.move_clock(10);
    bot.replies(1);
    assert_eq!(bot.questions(), ["Hola\n[+5s] Quiero reservar"]);
    bot.move_clock(1);
    servers[2].takes(&message(CUSTOMER, "Gracias"));
    bot.move_clock(55);
    meanwhile(Duration::from_millis(500), || bot.questions().len() == 1, "a window of its own");
    bot.move_clock(10);
    bot.replies(2);
    assert_eq!(bot.questions()[1..], ["Gracias"]);
    assert_eq!(bot.number("SELECT count(*) FROM run WHERE claimed_at >= first_at + 65000"), 2);
    let log = Log::of(servers);
    assert_eq!(
        (log.met(CUSTOMER).join(" "), log.leases(CUSTOMER)),
        ("opened waiting opened".into(), vec![2, 1])
    );
}

#[test]
fn hole_messages_deleted_before_they_were_answered() {
    let bot = Bot::new(&Setup::default());
    bot.model.follow(thinking(600_000));
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hola"));
    server.takes(&message(CUSTOMER, "Quiero reservar"));
    bot.asked(1);
    server.kill();
    assert_eq!(bot.number("SELECT count(*) FROM event"), 2, "both are where they were");
    bot.model.follow(echo());
    let server = bot.serve();
    bot.replies(1);
    let questions = bot.questions();
    assert_eq!(questions.len(), 2);
    assert_eq!(questions[0], questions[1], "asked again with the same");
    server.stop();
}

#[test]
fn hole_lock_of_a_crashed_worker_until_restart() {
    lock_of_a_crashed_worker(Kind::Sqlite);
}

#[test]
fn a_worker_killed_during_the_model_call_on_postgresql() {
    lock_of_a_crashed_worker(Kind::Postgres);
}

#[test]
fn a_worker_killed_during_the_model_call_on_redis() {
    lock_of_a_crashed_worker(Kind::Redis);
}

/// Nothing is started after the crash: who is there takes over.
fn lock_of_a_crashed_worker(kind: Kind) {
    let bot = Bot::new(&Setup::on(kind));
    bot.model.follow(thinking(600_000));
    let first = bot.serve();
    first.takes(&message(CUSTOMER, "Hola"));
    bot.asked(1);
    let second = bot.serve();
    bot.model.follow(echo());
    let killed = first.pid();
    first.kill();
    bot.replies(1);
    assert_eq!(bot.questions(), ["Hola", "Hola"]);
    let log = second.stop();
    let reclaimed = log.named("lease.reclaimed");
    let taken: Vec<&Value> = reclaimed.iter().map(|line| &line["prior_pid"]).collect();
    assert_eq!(taken, [killed], "{reclaimed:?}");
    assert_eq!(log.named("startup.swept")[0]["count"], 0);
    assert_eq!(log.leases(CUSTOMER), [1]);
}

/// Two servers that are killed and started again while customers write.
struct Pair<'a> {
    bot: &'a Bot,
    servers: Vec<Server>,
    kills: usize,
    /// The most replies that were on their way at once when everybody died.
    unsure: i64,
}

impl Pair<'_> {
    /// Once more until somebody has it, as providers do.
    fn deliver(&self, body: &str, first: usize) {
        let mut next = first;
        until("somebody takes it in", || {
            next += 1;
            self.servers[next % self.servers.len()].address.may_take(body)
        });
    }

    fn kill(&mut self, number: usize) {
        self.servers.remove(number).kill();
        self.kills += 1;
        self.servers.push(self.bot.serve());
    }

    /// The hardest moment: the provider has a reply, and nobody is left to write that down.
    fn kill_both_while_sending(&mut self) {
        let before = self.bot.providers.delivered().len();
        let watch = Watch::start();
        while self.bot.providers.delivered().len() == before && watch.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        let both = std::mem::take(&mut self.servers);
        both.iter().for_each(|server| server.signal(Signal::KILL));
        self.kills += both.len();
        drop(both);
        let begun = "SELECT count(*) FROM step WHERE name LIKE 'send-%' AND value IS NULL";
        self.unsure = self.unsure.max(self.bot.number(begun));
        self.servers = vec![self.bot.serve(), self.bot.serve()];
    }
}

#[test]
fn hole_two_replies() {
    let seed = Chance::from_system().number();
    println!("seed {seed}");
    let chance = Chance::seeded(seed);
    let below = |most: u64| chance.number() % most;
    let bot = Bot::new(&Setup::default());
    bot.model.follow(thinking(150));
    let servers = vec![bot.serve(), bot.serve()];
    let mut pair = Pair { bot: &bot, servers, kills: 0, unsure: 0 };
    let customer = |number: u64| format!("503768200{number:02}");
    let mut bursts = 0;
    // A test that met no reply on its way would have shown little.
    while bursts < 20 || (pair.unsure == 0 && bursts < 60) {
        for part in ["a", "b"] {
            let (text, id) = (format!("words-{bursts}-{part}"), format!("wamid.{bursts}{part}"));
            pair.deliver(&identified(&customer(bursts), &text, &id), usize::from(below(2) == 0));
        }
        if bursts % 4 == 3 {
            pair.kill_both_while_sending();
        } else {
            millis(below(500));
            pair.kill(usize::from(below(2) == 0));
        }
        bursts += 1;
    }
    bot.idle();
    let delivered = bot.providers.delivered();
    let people = bot.json(&["chat", "list", "--human", "--limit", "100"]);
    let asked = |customer: &str| items(&people).iter().any(|one| one["customer"] == customer);
    let mut answered = 0;
    for number in 0..bursts {
        for part in ["a", "b"] {
            let text = format!("words-{number}-{part}");
            let replies = delivered.iter().filter(|reply| reply.text.contains(&text)).count();
            answered += replies;
            assert!(replies <= 1, "{text} was answered {replies} times: {delivered:#?}");
            assert!(replies == 1 || asked(&customer(number)), "nobody has answered {text}: {people:#}");
        }
    }
    let (kills, unsure, questions) = (pair.kills, pair.unsure, bot.questions().len());
    println!("{bursts} bursts, {kills} kills, {unsure} replies met on their way, {questions} questions");
    println!("{answered} of {} messages answered by the bot", 2 * bursts);
    for server in pair.servers {
        server.stop();
    }
    bot.quell(&["doctor"]).ok();
}

#[test]
fn hole_message_after_the_buffer_was_read_and_before_the_lock_was_released_waits_for_the_next_one() {
    let bot = Bot::new(&Setup::default());
    bot.model.follow(thinking(1_000));
    let server = bot.serve();
    server.takes(&message(CUSTOMER, "Hola"));
    bot.asked(1);
    server.takes(&message(CUSTOMER, "Quiero reservar"));
    // Nobody writes any more, and nobody has to.
    let replies = bot.replies(2);
    assert_eq!(bot.questions(), ["Hola", "Quiero reservar"]);
    assert!(at(&bot.model.asked()[1]) >= replies[0].at.as_millis(), "one after the other");
    assert_eq!(server.stop().met(CUSTOMER), ["opened", "running"]);
}

#[test]
fn hole_startup_cleanup_removes_a_live_peers_lock() {
    let bot = Bot::new(&Setup { lease: "60s", ..Setup::default() });
    bot.model.follow(thinking(4_000));
    let first = bot.serve();
    first.takes(&message(CUSTOMER, "Hola"));
    bot.asked(1);
    let held = bot.json(&["lanes", "--running"]);
    let mut second = bot.serve();
    assert_eq!(second.logged("startup.swept")[0]["count"], 0);
    // Its holder is as alive as before, however often others start.
    assert_eq!(items(&bot.json(&["lanes", "--running"]))[0]["run_id"], items(&held)[0]["run_id"], "{held:#}");
    bot.replies(1);
    assert_eq!(bot.questions(), ["Hola"]);
    assert_eq!(first.stop().leases(CUSTOMER), [1]);
    assert!(second.stop().leases(CUSTOMER).is_empty());
}

#[test]
fn hole_release_without_owner_check() {
    let bot = Bot::new(&Setup::default());
    bot.model.follow(thinking(1_000));
    let mut first = bot.serve();
    first.takes(&message(CUSTOMER, "Hola"));
    bot.asked(1);
    bot.freeze(&first);
    bot.model.follow(thinking(3_000));
    let second = bot.serve();
    bot.asked(2);
    // The one that was away finds its answer, and may neither send it nor give the customer free.
    first.signal(Signal::CONT);
    until("it notices", || first.logged("lease.released").iter().any(|line| line["state"] == "lost"));
    second.takes(&message(CUSTOMER, "Quiero reservar"));
    meanwhile(Duration::from_millis(500), || bot.model.asked().len() == 2, "the customer was given free");
    bot.replies(2);
    assert_eq!(bot.questions(), ["Hola", "Hola", "Quiero reservar"]);
    assert_eq!(bot.said(CUSTOMER).len(), 4);
    first.stop();
    second.stop();
}
