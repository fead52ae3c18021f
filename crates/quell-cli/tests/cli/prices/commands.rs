//! `quell prices`, as somebody types it.

use quell_collectors::local::{Catalogue, Endpoint, Fault, LocalMarket};
use serde_json::Value;

use super::stall::{Kind, NO_CACHE, Stall};
use crate::support::{Folder, items};

#[test]
fn a_new_user_describes_a_source_tries_it_out_collects_and_sees_a_value() {
    let stall = Stall::new(Kind::Sqlite, "");
    let (url, folder) = (stall.market.shop_url(), &stall.folder);
    folder.write("quell.toml", "# mine\n[queues.mail]\nwindow = \"none\"\n");
    let shop = [
        "prices",
        "source",
        "add",
        "corner",
        "--url",
        &url,
        "--items",
        "/results",
        "--id",
        "/sku",
        "--title",
        "/name",
        "--price",
        "/price/amount",
        "--currency",
        "USD",
        "--paging",
        "page",
        "--page-size",
        "20",
        "--header",
        "X-Api-Key={secret}",
        "--secret-env",
        "LOCAL_SHOP_KEY",
    ];
    let mut dry = shop.to_vec();
    dry.push("--dry-run");
    stall.quell(&dry).ok().says("[prices.sources.corner]");
    assert!(!folder.read("quell.toml").contains("prices"), "a dry run changes nothing");
    stall.quell(&shop).ok().says("added [prices.sources.corner]").complains("it is disabled");
    let written = folder.read("quell.toml");
    assert!(written.starts_with("# mine\n[queues.mail]") && written.contains("{secret}"), "{written}");
    stall.quell(&["check"]).ok();
    stall.quell(&shop).exits(2).complains("corner");
    assert_eq!(folder.read("quell.toml"), written, "a second one of that name changes nothing");

    let about = ["prices", "source", "test", "corner", "--title", "Silver Eagle", "--year", "2024"];
    stall.quell(&about).exits(4).complains("is disabled").complains("source enable corner");
    stall.quell(&["prices", "source", "enable", "corner"]).ok().says("enabled source corner");
    let tested = stall.quell(&about).ok().says("4 items on 1 page").says("Silver Eagle");
    assert!(tested.out.contains("2024"), "{}", tested.out);
    let tested = stall.json(&about);
    assert_eq!((&tested["state"], &tested["result"]["found"]), (&"succeeded".into(), &4.into()), "{tested}");

    let id = stall.quell(&["prices", "intake", "add", "--title", "Silver Eagle", "--year", "2024"]).ok();
    let id = id.out.trim().to_owned();
    assert_eq!(id, "2024-silver-eagle", "it is named after what it is");
    stall
        .quell(&["prices", "intake", "add", "--title", "Silver Eagle", "--year", "2024"])
        .ok()
        .complains("known already");
    stall.quell(&["prices", "intake", "list"]).ok().says("2024-silver-eagle").says("USD");
    stall.quell(&["prices", "valuation"]).ok().complains("no values yet");
    stall.quell(&["prices", "collect"]).ok().says("sent 1 request for 1 intake at 1 source");
    stall.quell(&["work", "--until-idle"]).ok();

    let shown = stall.json(&["prices", "intake", "show", &id]);
    assert_eq!(
        (&shown["collected"][0]["found"], &shown["collected"][0]["new"]),
        (&4.into(), &3.into()),
        "{shown}"
    );
    assert!(shown["valuation"]["estimate"]["cents"].is_i64(), "{shown}");
    stall.quell(&["prices", "points", &id]).ok().says("Silver Eagle").says("USD");
    stall.quell(&["prices", "valuation", &id]).ok().says("half of the weight between").says("made of");
    stall.quell(&["prices", "valuation"]).ok().says(&id);
    stall.quell(&["prices", "source", "list"]).ok().says("corner").says("closed");
    stall.quell(&["runs", "--queue", "collect"]).ok().says("succeeded");
    stall.quell(&["prices", "points", "--duplicates"]).ok().complains("no item is stored twice");
    stall.quell(&["prices", "intake", "remove", &id]).exits(2).complains("--yes");
    stall.quell(&["prices", "intake", "remove", &id, "--yes"]).ok();
    stall.quell(&["prices", "intake", "show", &id]).exits(3).complains("there is no intake");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let stall = Stall::new(Kind::Sqlite, "");
    stall.intake("coin");
    stall.quell(&["prices", "collect", "nothing"]).exits(3).complains("there is no intake \"nothing\"");
    stall.quell(&["prices", "collect", "--source", "amazon"]).exits(3).complains("there are: ebay, shop");
    stall.quell(&["prices", "source", "disable", "amazon"]).exits(3);
    stall
        .quell(&["prices", "intake", "add", "--year", "1921"])
        .exits(2)
        .complains("needs a series or a title");
    stall.quell(&["prices", "intake", "add", "--id", "a:b", "--title", "x"]).exits(2).complains("is no id");
    stall
        .quell(&["prices", "intake", "add", "--title", "x", "--currency", "usd"])
        .exits(2)
        .complains("three capital letters");
    stall.folder.write("bad.jsonl", "{\"title\":\"good\"}\n{\"tittle\":\"bad\"}\n");
    stall.quell(&["prices", "intake", "add", "--from", "bad.jsonl"]).exits(2).complains("line 2");
    stall.quell(&["prices", "source", "test", "shop"]).exits(2).complains("--title");
    stall.quell(&["prices", "source", "add", "two", "--url", "ftp://x/"]).exits(2);
    for name in ["ebay", "shop"] {
        stall.quell(&["prices", "source", "disable", name]).ok();
    }
    stall.quell(&["prices", "collect"]).exits(4).complains("every source is disabled");
    stall.quell(&["prices", "collect", "--source", "shop"]).exits(4).complains("source enable shop");

    let bare = Folder::with_config("[queues.a]\n");
    bare.quell(&["prices", "intake", "add", "--title", "x"]).ok();
    bare.quell(&["prices", "collect"]).exits(2).complains("no [prices]");
}

/// The request of a run that fails for good, and nothing of it in the book.
#[test]
fn bad_answers_fail_for_good_and_nothing_is_stored() {
    let more = "[queues.collect]\nretry = { base = \"100ms\", attempts = 2, jitter = 0.0 }\n[sources.shop]\ncache = false\n";
    let stall = Stall::with(Kind::Sqlite, more, Catalogue::generated(2));
    let cases = [
        ("nan", Fault::Nan, "price"),
        ("nan-text", Fault::NanText, "price"),
        ("currency", Fault::Currency("EUR".to_owned()), "EUR"),
        ("redirect", Fault::Redirect("https://elsewhere.example/".to_owned()), "elsewhere.example"),
    ];
    // What it declares, and what each item says, can differ.
    let declared = "items = \"/results\"\ncurrency = \"USD\"";
    let text = stall.folder.read("quell.toml").replace("items = \"/results\"", declared);
    stall.folder.write("quell.toml", &text);
    for (intake, fault, part) in cases {
        stall.intake(intake);
        stall.market.fail_always(Endpoint::Shop, Some(fault));
        stall.quell(&["prices", "collect", intake, "--source", "shop"]).ok();
        stall.quell(&["work", "--until-idle"]).ok();
        let run = stall.json(&["runs", "--queue", "collect", "--key", &format!("{intake}:shop")]);
        let run: &Value = &items(&run)[0];
        assert_eq!((&run["state"], &run["attempts"]), (&"failed".into(), &1.into()), "{intake}: {run}");
        let error = run["error"].as_str().unwrap();
        assert!(error.contains(part), "{intake}: {part:?} is not in {error}");
        assert_eq!(stall.points(intake), Vec::<Value>::new(), "{intake}: nothing is stored");
    }
    // A template without a value, and a source that nobody described.
    stall.market.fail_always(Endpoint::Shop, None);
    let text = stall.folder.read("quell.toml").replace("q={query}", "q={mintmark}");
    stall.folder.write("quell.toml", &text);
    stall.intake("template");
    stall.quell(&["prices", "collect", "template", "--source", "shop"]).ok();
    let unknown = "{\"intake_id\":\"template\",\"source_id\":\"amazon\"}";
    stall.quell(&["send", "collect", "template:amazon", unknown]).ok();
    stall.quell(&["work", "--until-idle"]).ok();
    for (key, part) in [("template:shop", "mintmark"), ("template:amazon", "there is no source")] {
        let run = stall.json(&["runs", "--queue", "collect", "--key", key]);
        let run: &Value = &items(&run)[0];
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["error"].as_str().unwrap().contains(part), "{run}");
    }
    assert_eq!(stall.points("template"), Vec::<Value>::new());
}

#[test]
fn a_schedule_collects_everything_and_a_change_of_the_file_reaches_a_running_worker() {
    let stall = Stall::new(Kind::Sqlite, NO_CACHE);
    stall.intakes(3);
    stall.quell(&["prices", "source", "disable", "ebay"]).ok();
    let mut worker = stall.worker("worker-1", 300, &[]);
    stall.quell(&["send", "collect", "all", "{\"all\":true}", "--wait"]).ok();
    stall.idle();
    assert_eq!(stall.market.count(Endpoint::Shop), 3);
    assert_eq!(stall.market.count(Endpoint::Search), 0, "a disabled source is not asked");

    // From now on the shop is asked for another thing.
    let text = stall.folder.read("quell.toml").replace("q={query}", "q=changed+{query}");
    stall.folder.write("quell.toml", &text);
    worker.signal(rustix::process::Signal::HUP);
    worker.line("config.reloaded");
    stall.quell(&["prices", "collect", "coin-0001", "--source", "shop"]).ok();
    stall.idle();
    assert!(
        stall.market.asked().last().unwrap().query.starts_with("changed"),
        "{:?}",
        stall.market.asked().last()
    );
    worker.stop();
}

#[test]
fn prices_need_tables_and_say_so() {
    let stall = Stall::new(Kind::Sqlite, "");
    let url = format!("{}?prefix=prices{}", quell_test_servers::redis_url(), std::process::id());
    let mut command = stall.command(&["work", "--until-idle"]);
    command.env("QUELL_STORE", &url).envs(LocalMarket::env());
    crate::support::Answer::of(&mut command).exits(2).complains("prices need tables");
    let mut command = stall.command(&["prices", "intake", "list"]);
    command.env("QUELL_STORE", &url);
    let refused = crate::support::Answer::of(&mut command);
    assert_ne!(refused.code, 0);
    refused.complains("SQLite or PostgreSQL");
}
