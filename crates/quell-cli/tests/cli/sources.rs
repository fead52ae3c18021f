//! Outside parties with limits: declared in the file, looked at and steered by hand.

use crate::support::{Folder, items, until};

const CONFIG: &str = "[sources.ebay]\nrate_limit_per_minute = 6\nburst = 2\n\
                      [queues.jobs]\nwindow = \"none\"\nsource = \"ebay\"\n\
                      [queues.free]\nwindow = \"none\"\n";

#[test]
fn keys_of_a_source_go_by_its_rate_and_the_others_go_on() {
    let folder = Folder::with_config(CONFIG);
    for key in ["a", "b", "c", "d"] {
        folder.quell(&["send", "jobs", key]).ok();
    }
    folder.quell(&["send", "free", "x"]).ok();
    let worker = folder.start(&["work"]);
    let settled = || {
        let runs = folder.json(&["runs"]);
        items(&runs).iter().filter(|run| run["state"] == "succeeded").count()
    };
    until("the burst and the other queue have run", || settled() == 3);
    // The burst and the other queue; two keys wait, and say for what.
    let lanes = folder.json(&["lanes", "--queue", "jobs"]);
    assert_eq!(items(&lanes).len(), 2, "{lanes}");
    folder.quell(&["lane", "jobs", "d"]).ok().says("source ebay is rate limited for");
    let lane = folder.json(&["lane", "jobs", "d"]);
    assert_eq!(lane["waiting"]["source"]["name"], "ebay", "{lane}");
    assert_eq!(lane["waiting"]["source"]["because"], "rate_limited", "{lane}");

    folder.quell(&["sources"]).ok().says("NAME  ENABLED  BREAKER  STREAK").says("ebay  yes      closed");
    folder.quell(&["sources", "show", "ebay"]).ok().says("rate limit").says("6 per minute, burst 2");
    let one = folder.json(&["sources", "show", "ebay"]);
    assert_eq!((&one["waiting"], &one["enabled"]), (&2.into(), &true.into()), "{one}");

    // A full bucket by hand lets both go.
    folder.quell(&["sources", "reset", "ebay"]).ok().says("reset source ebay");
    until("the others have run", || settled() == 5);
    worker.stop();
}

#[test]
fn a_source_is_disabled_enabled_changed_removed_and_released() {
    let folder = Folder::with_config(CONFIG);
    folder.quell(&["send", "jobs", "a"]).ok();
    folder.quell(&["sources", "disable", "ebay", "--reason", "they are down"]).ok().says("its keys are held");
    folder.quell(&["sources", "disable", "ebay"]).ok().says("was disabled already");
    folder.quell(&["lane", "jobs", "a"]).ok().says("source ebay is disabled");
    folder.quell(&["sources", "enable", "ebay"]).ok().says("enabled source ebay");
    let put = ["sources", "put", "shop", "--rate-limit-per-minute", "30", "--burst", "3", "--no-cache"];
    folder.quell(&put).ok().says("put source shop");
    folder.quell(&put).ok().says("was there just so");
    let all = folder.json(&["sources"]);
    let names: Vec<_> = items(&all).iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ebay", "shop"]);
    assert_eq!(items(&all)[1]["per_minute"], 30, "{all}");

    folder.quell(&["sources", "remove", "ebay"]).ok().says("are held until it is put again");
    folder.quell(&["sources", "remove", "nobody"]).exits(3).complains("there is no source nobody");
    folder.quell(&["lane", "jobs", "a"]).ok().says("source ebay is not declared any more");
    folder.quell(&["sources", "release", "ebay"]).ok().says("go without limits");
    folder.quell(&["sources", "show", "ebay"]).ok().says("released");

    // The trail says who did it and why; what changed nothing is not in it.
    let trail = folder.json(&["audit", "--queue", "quell.sources"]);
    let told: Vec<_> = items(&trail).iter().map(|record| record["change"].as_str().unwrap()).collect();
    assert_eq!(told, ["source_released", "source_enabled", "source_disabled"], "{trail}");
    let first = items(&trail).last().unwrap();
    assert_eq!(first["key"], "ebay");
    assert!(first["actor"].as_str().unwrap().ends_with(": they are down"), "{first}");
    folder.quell(&["audit"]).ok().says("quell.sources/ebay").says("source_disabled").says("they are down");
}

#[test]
fn a_source_that_nobody_declares_is_refused_and_nothing_is_stored() {
    let folder = Folder::with_config(CONFIG);
    folder.quell(&["send", "free", "a"]).ok();
    folder.quell(&["send", "free", "b", "--source", "amazon"]).exits(2).complains("[sources.amazon]");
    folder.quell(&["lane", "free", "b"]).exits(3);
    folder.quell(&["sources", "put", "x", "--rate-limit-per-minute", "0"]).exits(2).complains("disable");
    let bad = Folder::with_config("[queues.jobs]\nsource = \"ebay\"\n");
    bad.quell(&["check"]).exits(2).complains("add a section [sources.ebay]");
}
