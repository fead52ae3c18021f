//! The inspector: what it remembers, what it must not, and taking deliveries in again.

use quell::deliveries::{DeliveryRecord, DeliveryVerdict, Places};
use quell::quell_core::clock::Timestamp;
use quell::tokens::Scope;
use reqwest::Method;
use serde_json::{Value, json};

use crate::senders::*;
use crate::support::{Reply, World, until};

/// A record as the server would have made it of a delivery that was refused.
fn record(id: &str, endpoint: &str, headers: Fields, body: &str, received_at: i64) -> DeliveryRecord {
    DeliveryRecord {
        id: id.to_owned(),
        endpoint: endpoint.to_owned(),
        scheme: endpoint.to_owned(),
        received_at: Timestamp::from_millis(received_at * 1_000),
        first_at: None,
        from: Some("192.0.2.7".to_owned()),
        method: "POST".to_owned(),
        target: format!("/hooks/{endpoint}"),
        headers,
        headers_are_cut: false,
        body: body.to_owned(),
        body_is_base64: false,
        body_bytes: body.len(),
        body_is_cut: false,
        verdict: DeliveryVerdict::Refused,
        reason: Some("bad_signature".to_owned()),
        detail: Some("the signature is not that of these bytes with our secret".to_owned()),
        status: 401,
        proven: false,
        secret: None,
        events: Vec::new(),
        replay_of: None,
        replayed_by: None,
    }
}

async fn keep(world: &World, record: DeliveryRecord) {
    world.engine.keep_delivery(&mut Places::default(), record).await.expect("it is kept");
}

async fn replay(world: &World, id: &str) -> Reply {
    Reply::of(world.request(Method::POST, &format!("/v1/deliveries/{id}/replay"))).await
}

/// Takes it in again, which is possible.
async fn replayed(world: &World, id: &str) -> Value {
    let reply = replay(world, id).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let told = reply.json();
    assert_eq!((&told["replay_of"], &told["replayed_by"]), (&json!(id), &json!("api")), "{told}");
    told
}

fn is_in(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[tokio::test]
async fn no_secret_is_remembered_anywhere() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("file.secret");
    std::fs::write(&file, "canary-in-a-file\n").expect("it is written");
    let more = format!(
        "[endpoints.file]\nscheme = \"bearer\"\nheader = \"X-File\"\nsecret_file = {:?}\nqueue = \"jobs\"\nkey = \"/key\"\n",
        file.display().to_string()
    );
    let world = hooked(&more).await;
    let body = "{\"key\":\"k\"}";
    let bearer = format!("Bearer {BEARER}");
    let with = |more: &[(&str, &str)]| {
        let cookie = fields(&[("Cookie", "session=canary"), ("Proxy-Authorization", "Basic canary")]);
        [cookie, fields(more)].concat()
    };
    let query = "?token=canary&canary&verify_token=canary%20x";
    let sent: [(&str, Fields, u16); 14] = [
        ("bearer", with(&[("Authorization", &bearer)]), 200),
        ("bearer", with(&[("Authorization", "Bearer canary-wrong")]), 401),
        ("bearer", with(&[("Authorization", BEARER)]), 401),
        ("word", with(&[("X-Shop-Word", WORD)]), 200),
        ("word", with(&[("X-Shop-Word", "canary-wrong"), ("Authorization", &bearer)]), 401),
        ("file", with(&[("X-File", "canary-in-a-file")]), 200),
        ("open", with(&[("Authorization", &bearer)]), 200),
        // Sent to the wrong endpoint, or to none at all.
        ("github", with(&[("X-Shop-Word", WORD), ("X-File", "canary-in-a-file")]), 401),
        ("hex", with(&[("X-Signature", WORD)]), 401),
        ("github", [github(GITHUB, body), with(&[("X-Shop-Word", WORD)])].concat(), 200),
        ("nobody", with(&[("Authorization", &bearer), ("X-Shop-Word", WORD)]), 401),
        ("nobody", with(&[("X-Api-Key", "canary-key"), ("X-Gitlab-Token", "canary-token")]), 401),
        ("standard", [standard("m1", body), with(&[])].concat(), 200),
        ("slack", [slack("{\"key\":1}"), with(&[])].concat(), 401),
    ];
    for (to, fields, status) in &sent {
        let answer = world.deliver(&format!("{to}{query}"), fields, body).await;
        assert_eq!(answer.status, *status, "{to}: {}", answer.body);
    }
    until("all are remembered", async || {
        world.engine.deliveries().await.expect("they are listed").len() == sent.len()
    })
    .await;
    let mut seen = vec![world.get("/v1/deliveries").await.text, world.get("/metrics").await.text];
    for row in world.get("/v1/deliveries").await.json()["items"].as_array().expect("a list") {
        let one = world.get(&format!("/v1/deliveries/{}", row["id"].as_str().expect("an id"))).await;
        assert_eq!(one.status, 200, "{}", one.text);
        assert!(one.text.contains("[redacted]") && one.text.contains("token=[redacted]"), "{}", one.text);
        seen.push(one.text);
    }
    for path in ["/v1/lanes?idle=true", "/v1/runs", "/v1/audit", "/openapi.json"] {
        seen.push(world.get(path).await.text);
    }
    let claimed = json!({ "queues": ["jobs"], "worker": "w1", "max": 100, "wait_ms": 1000 });
    seen.push(world.post("/v1/claims", claimed).await.text);
    // In base64 it begins like this, wherever it stands by itself.
    let canaries = ["canary", "Y2FuYXJ5"];
    for text in &seen {
        assert!(canaries.iter().all(|canary| !text.contains(canary)), "{text}");
    }
    let mut folders = vec![world.folder.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it is there").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // A lock may be a socket.
            if !path.is_file() {
                continue;
            }
            let bytes = std::fs::read(&path).expect("it can be read");
            assert!(canaries.iter().all(|canary| !is_in(&bytes, canary)), "{}", path.display());
            files += usize::from(is_in(&bytes, "[redacted]"));
        }
    }
    assert!(files > 0, "records stand in the files of the store");
    assert!(!format!("{:?}", world.engine.settings()).contains("canary"));
}

#[tokio::test]
async fn an_erased_key_is_not_remembered_by_its_deliveries_either() {
    let world = hooked("").await;
    for (key, word) in [("ada", "a-word-that-must-go"), ("bob", "another-one-stays")] {
        let body = format!("{{\"key\":\"{key}\",\"text\":\"{word}\"}}");
        world.deliver("github", &github(GITHUB, &body), &body).await;
    }
    until("both are remembered", async || world.engine.deliveries().await.expect("a list").len() == 2).await;
    let queue = quell::quell_core::event::QueueName::new("jobs").expect("a name");
    let lane = |key: &str| {
        let key = quell::quell_core::event::Key::new(key).expect("a key");
        quell::quell_core::event::LaneKey::new(queue.clone(), key)
    };
    world.engine.erase_lane(lane("ada"), "test").await.expect("it is erased");
    let left = world.engine.deliveries().await.expect("a list");
    assert_eq!(left.iter().map(|record| record.events[0].key.as_str()).collect::<Vec<_>>(), ["bob"]);
    let files = std::fs::read_dir(world.folder.path()).expect("a folder");
    let bytes: Vec<u8> =
        files.flat_map(|file| std::fs::read(file.expect("a file").path()).unwrap_or_default()).collect();
    assert!(!is_in(&bytes, "a-word-that-must-go") && is_in(&bytes, "another-one-stays"));
    let id = left[0].events[0].event_id.clone();
    world.engine.erase_event(lane("bob"), id, "test").await.expect("it is erased");
    assert_eq!(world.engine.deliveries().await.expect("a list"), []);
}

#[tokio::test]
async fn strangers_cannot_fill_the_memory_of_what_was_taken() {
    let world = hooked("").await;
    for n in 0..3 {
        assert_eq!(world.deliver_github(&format!("d{n}"), format!("{{\"key\":\"k{n}\"}}")).await.status, 200);
    }
    assert_eq!(world.get("/metrics").await.status, 200, "from here on it counts");
    let strangers =
        (0..300).map(|n| Reply::of(world.request(Method::POST, "/hooks/github").body(n.to_string())));
    for reply in futures_util::future::join_all(strangers).await {
        assert_eq!(reply.status, 401);
    }
    let counted = async |verdict: &str| {
        let listed = world.get(&format!("/v1/deliveries?verdict={verdict}")).await;
        assert_eq!(listed.status, 200, "{}", listed.text);
        listed.json()["items"].as_array().expect("a list").len()
    };
    until("what was taken is there", async || counted("accepted").await == 3).await;
    // Many more, of a longer time.
    let mut places = Places::default();
    for n in 0..300 {
        let old = record(&format!("dlv_{n}"), "nobody", Vec::new(), "{}", 1_000 + n);
        world.engine.keep_delivery(&mut places, old).await.expect("it is kept");
    }
    assert_eq!((counted("refused").await, counted("accepted").await), (128, 3));
    assert_eq!(world.get("/v1/deliveries/dlv_299").await.status, 200, "the newest is there");
    assert_eq!(world.get("/v1/deliveries/dlv_0").await.status, 404);
    let unrecorded = world.get("/metrics").await.text;
    assert!(unrecorded.contains("quell_hooks_unrecorded_total"), "what is forgotten is counted");
}

#[tokio::test]
async fn deliveries_are_listed_newest_first_by_endpoint_and_verdict() {
    let world = hooked("").await;
    let (body, asks) = ("{\"key\":\"k\"}", "{\"type\":\"url_verification\",\"challenge\":\"a\"}");
    let known = [github(GITHUB, body), fields(&[("X-GitHub-Delivery", "d1")])].concat();
    for (to, fields, body) in [
        ("github", known.clone(), body),
        ("github", known, body),
        ("hex", vec![], body),
        ("slack", slack(asks), asks),
    ] {
        world.deliver(to, &fields, body).await;
        // Those of one millisecond have no order.
        quell::clock::sleep(std::time::Duration::from_millis(5)).await;
    }
    until("all are remembered", async || {
        world.engine.deliveries().await.expect("they are listed").len() == 4
    })
    .await;
    let listed = async |query: &str| -> Vec<(String, String)> {
        let rows = world.get(&format!("/v1/deliveries{query}")).await.json()["items"].clone();
        let text = |row: &Value, name: &str| row[name].as_str().expect("a text").to_owned();
        let rows = rows.as_array().expect("a list").clone();
        rows.iter().map(|row| (text(row, "endpoint"), text(row, "verdict"))).collect()
    };
    let (github, duplicate) = (("github", "accepted"), ("github", "duplicate"));
    let (hex, slack) = (("hex", "refused"), ("slack", "ignored"));
    for (query, wanted) in [
        ("", vec![slack, hex, duplicate, github]),
        ("?endpoint=github", vec![duplicate, github]),
        ("?verdict=refused", vec![hex]),
        ("?verdict=ignored&endpoint=slack", vec![slack]),
        ("?verdict=refused&endpoint=github", vec![]),
        ("?endpoint=nobody", vec![]),
    ] {
        let got = listed(query).await;
        let got: Vec<(&str, &str)> = got.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(got, wanted, "{query}");
    }
    assert_eq!(world.get("/v1/deliveries?verdict=perhaps").await.status, 400);
    assert_eq!(world.get("/v1/deliveries?limit=5").await.status, 400);
    let row = &world.get("/v1/deliveries?endpoint=hex").await.json()["items"][0];
    assert_eq!(
        (&row["status"], &row["reason"], &row["from"]),
        (&json!(401), &json!("missing_signature"), &json!("127.0.0.1"))
    );
    assert!(row.get("body").is_none() && row.get("headers").is_none(), "{row}");
}

#[tokio::test]
async fn who_reads_may_look_who_operates_may_replay_and_both_only_without_limits() {
    let world = hooked("").await;
    let read = world.token("read", &[Scope::Read], &[], &[]).await;
    let operate = world.token("operate", &[Scope::Operate], &[], &[]).await;
    let ingest = world.token("ingest", &[Scope::Ingest, Scope::Work], &[], &[]).await;
    let ada = world.token("ada", &[Scope::Read, Scope::Operate], &["ada"], &[]).await;
    let jobs = world.token("jobs", &[Scope::Read, Scope::Operate], &[], &["jobs"]).await;
    assert_eq!(
        world.deliver_github("d1", "{\"key\":\"k\"}").await.status,
        200,
        "a hook needs no token of ours"
    );
    let id = world.recorded("it is there", |record| record.endpoint == "github").await.id;
    for (token, sees, replays) in
        [(&read, 200, 403), (&operate, 200, 200), (&ingest, 403, 403), (&ada, 403, 403), (&jobs, 403, 403)]
    {
        assert_eq!(world.get_as(token, "/v1/deliveries").await.status, sees);
        assert_eq!(world.get_as(token, &format!("/v1/deliveries/{id}")).await.status, sees);
        let path = format!("/v1/deliveries/{id}/replay");
        let reply = Reply::of(world.request(Method::POST, &path).bearer_auth(token)).await;
        assert_eq!(reply.status, replays, "{}", reply.text);
        if replays == 200 {
            assert!(
                reply.json()["replayed_by"].as_str().is_some_and(|by| by.contains("operate")),
                "{}",
                reply.text
            );
        }
    }
    assert_eq!(world.get("/v1/deliveries").await.status, 401);
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn what_was_taken_is_taken_in_again_as_something_new() {
    let world = hooked("").await;
    let long = "i".repeat(256);
    for (id, key) in [("d1", "a"), (long.as_str(), "b")] {
        assert_eq!(world.deliver_github(id, format!("{{\"key\":\"{key}\"}}")).await.status, 200);
        let run = world.claim("jobs", 1).await.remove(0);
        world.settle(&run, json!({ "outcome": "succeeded" })).await;
        let first = world
            .recorded("it is there", |record| record.events.iter().any(|event| event.key.as_str() == key))
            .await;
        let mut ids = vec![id.to_owned()];
        for _ in 0..2 {
            let told = replayed(&world, &first.id).await;
            assert_eq!(
                (&told["verdict"], &told["events"][0]["duplicate"]),
                (&json!("accepted"), &json!(false)),
                "{told}"
            );
            let run = world.claim("jobs", 1).await.remove(0);
            assert_eq!((&run["key"], &run["events"][0]["id"]), (&json!(key), &told["events"][0]["event_id"]));
            ids.push(run["events"][0]["id"].as_str().expect("an id").to_owned());
            world.settle(&run, json!({ "outcome": "succeeded" })).await;
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{ids:?}");
    }
    assert_eq!(world.accepted().await, 6);
    world.verify().await;
}

/// The configuration and the secrets of [`hooked`], as texts that a restart can change.
fn with_secret<'a>(
    secrets: &'a [(&'static str, String)],
    name: &str,
    value: &'a str,
) -> Vec<(&'a str, &'a str)> {
    let change = |(n, v): &'a (&'static str, String)| (*n, if *n == name { value } else { v.as_str() });
    secrets.iter().map(change).collect()
}

#[tokio::test]
async fn what_came_while_the_secret_was_wrong_is_taken_in_again_with_the_right_one() {
    let all = secrets();
    let stranger = format!("whsec_{}", base64(&[7; 32]));
    let world = World::hooked(HOOKS, &with_secret(&all, "STANDARD", &stranger)).await;
    let body = "{\"key\":\"k\",\"n\":1}";
    assert_eq!(world.deliver("standard", &standard("m1", body), body).await.status, 401);
    let refused = world.refusal("standard", "bad_signature").await;
    assert_eq!(replayed(&world, &refused.id).await["reason"], "bad_signature", "it is still wrong");
    let second = world.recorded("the replay", |record| record.replay_of.is_some()).await;
    // One that came hours ago, when it was signed.
    let hours_ago = now() - 5 * 3_600;
    let body_of_old = "{\"key\":\"old\"}";
    let signed = standard_at(STANDARD_BYTES[0], "m2", &hours_ago.to_string(), body_of_old.as_bytes());
    keep(&world, record("dlv_old", "standard", signed, body_of_old, hours_ago)).await;
    let again = replayed(&world, "dlv_old").await;
    assert_eq!(again["reason"], "bad_signature");
    let of_old = again["id"].as_str().expect("an id").to_owned();
    world.recorded("the replay of the old one", |record| record.id == of_old).await;
    assert_eq!(world.accepted().await, 0);

    let world = world.restarted(HOOKS, &with_secret(&all, "", "")).await;
    // The replay that was refused will do as well as the delivery itself: both came hours ago.
    for (id, event) in [(second.id.as_str(), "m1"), (of_old.as_str(), "m2")] {
        let told = replayed(&world, id).await;
        assert_eq!(
            (&told["verdict"], &told["proven"], &told["secret"]),
            (&json!("accepted"), &json!(true), &json!(1)),
            "{told}"
        );
        assert_eq!(told["events"][0]["event_id"], event, "as its sender called it");
    }
    for id in [refused.id.as_str(), "dlv_old"] {
        assert_eq!(replayed(&world, id).await["verdict"], "duplicate", "it is known by now");
    }
    assert_eq!(world.deliver("standard", &standard("m1", body), body).await.json()["duplicates"], 1);
    assert_eq!(world.accepted().await, 2);
    world.verify().await;
}

#[tokio::test]
async fn a_time_is_judged_by_the_moment_at_which_it_came_to_the_second() {
    let world = hooked("").await;
    let came = 1_700_000_000;
    for (n, (seconds, verdict, reason)) in [
        (-300, "accepted", None),
        (300, "accepted", None),
        (-301, "refused", Some("stale")),
        (301, "refused", Some("future")),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, body, time) =
            (format!("m{n}"), format!("{{\"key\":\"{n}\",\"id\":\"{n}\"}}"), (came + seconds).to_string());
        for (endpoint, fields) in [
            ("standard", standard_at(STANDARD_BYTES[0], &id, &time, body.as_bytes())),
            ("stripe", stripe_at(STRIPE, &time, body.as_bytes())),
            ("slack", slack_at(SLACK, &time, body.as_bytes())),
        ] {
            let id = format!("dlv_{endpoint}_{n}");
            keep(&world, record(&id, endpoint, fields, &body, came)).await;
            let told = replayed(&world, &id).await;
            assert_eq!(
                (&told["verdict"], &told["reason"]),
                (&json!(verdict), &json!(reason)),
                "{endpoint} {seconds}: {told}"
            );
        }
    }
}

const KEYLESS: &str = "[queues.jobs]\nwindow = \"none\"\nhandler = \"pull\"\n\
                       [endpoints.github]\nscheme = \"github\"\nsecret_env = \"GITHUB\"\nqueue = \"jobs\"\n";

#[tokio::test]
async fn what_had_no_key_is_taken_in_again_when_the_rule_is_mended() {
    let secrets = [("GITHUB", GITHUB)];
    let world = World::hooked(&format!("{KEYLESS}key = \"/kee\"\n"), &secrets).await;
    assert_eq!(world.deliver_github("d1", "{\"key\":\"k\"}").await.status, 422);
    let id = world.refusal("github", "no_key").await.id;
    let world = world.restarted(&format!("{KEYLESS}key = \"/key\"\n"), &secrets).await;
    let told = replayed(&world, &id).await;
    assert_eq!(
        (&told["verdict"], &told["events"][0]["event_id"]),
        (&json!("accepted"), &json!("d1")),
        "{told}"
    );
    assert_eq!(world.deliver_github("d1", "{\"key\":\"k\"}").await.json()["duplicates"], 1);
    assert_eq!(world.accepted().await, 1);
}

#[tokio::test]
async fn bytes_that_are_no_text_come_back_as_they_were() {
    let world = hooked("").await;
    let body = b"\xff\x00{\"key\"";
    assert_eq!(world.deliver("github", &github(GITHUB, body), body).await.status, 422);
    let refused = world.refusal("github", "unreadable").await;
    assert!(refused.body_is_base64 && refused.proven, "{refused:?}");
    let told = replayed(&world, &refused.id).await;
    assert_eq!(
        (&told["reason"], &told["body"], &told["body_bytes"]),
        (&json!("unreadable"), &json!(refused.body), &json!(body.len()))
    );
}

#[tokio::test]
async fn what_cannot_be_taken_in_again_says_why() {
    let world = hooked("").await;
    let body = "{\"key\":\"k\"}";
    // A token is not kept, so it proves nothing any more; one that was proven stays so.
    let wrong = fields(&[("Authorization", "Bearer not-the-right-token")]);
    assert_eq!(world.deliver("bearer", &wrong, body).await.status, 401);
    let id = world.refusal("bearer", "bad_signature").await.id;
    let told = replayed(&world, &id).await;
    assert_eq!((&told["verdict"], &told["status"]), (&json!("refused"), &json!(401)), "{told}");
    assert!(told["reason"].is_string() && told["detail"].is_string(), "{told}");
    assert_eq!(world.accepted().await, 0);
    let right = fields(&[("Authorization", &format!("Bearer {BEARER}"))]);
    assert_eq!(world.deliver("bearer", &right, body).await.status, 200);
    let taken = world.recorded("it was taken", |record| record.verdict == DeliveryVerdict::Accepted).await;
    assert_eq!(replayed(&world, &taken.id).await["verdict"], "accepted");
    assert_eq!(world.accepted().await, 2);

    let large = format!("{{\"key\":\"k\",\"x\":\"{}\"}}", "x".repeat(40_000));
    assert_eq!(world.deliver("github", &github(GITHUB, &large), &large).await.status, 200);
    let unread = "x".repeat(1024 * 1024 + 1);
    assert_eq!(world.deliver("open", &fields(&[]), &unread).await.status, 413);
    let coded = [github(GITHUB, body), fields(&[("Content-Encoding", "gzip")])].concat();
    assert_eq!(world.deliver("github", &coded, body).await.status, 415);
    assert_eq!(world.deliver("nobody", &github(GITHUB, body), body).await.status, 401);
    let cut = world.recorded("the large one", |record| record.body_bytes == large.len()).await;
    assert!(cut.body_is_cut && large.starts_with(&cut.body));
    let mut gone = vec![cut.id];
    for (endpoint, reason) in
        [("open", "too-large"), ("github", "unsupported-media-type"), ("nobody", "unknown_endpoint")]
    {
        gone.push(world.refusal(endpoint, reason).await.id);
    }
    keep(
        &world,
        DeliveryRecord { headers_are_cut: true, ..record("dlv_cut", "open", Vec::new(), body, now()) },
    )
    .await;
    gone.push("dlv_cut".to_owned());
    for id in gone {
        let reply = replay(&world, &id).await;
        assert_eq!(
            (reply.status.as_u16(), reply.problem().as_str()),
            (409, "not-replayable"),
            "{id}: {}",
            reply.text
        );
    }
    let none = replay(&world, "dlv_nothing").await;
    assert_eq!((none.status.as_u16(), none.problem().as_str()), (404, "not-found"));
    assert_eq!(world.get("/v1/deliveries/dlv_nothing").await.status, 404);
    assert_eq!(world.accepted().await, 3);
}

#[tokio::test]
async fn a_long_signature_is_kept_whole_and_proves_it_again() {
    let world = hooked("").await;
    let body = "{\"key\":\"k\"}";
    let mut signed = standard("m1", body);
    let others = format!("v1,{} ", base64(&[7; 32])).repeat(15);
    signed[2].1 = format!("{others}{}", signed[2].1);
    // It was refused for another reason than its proof.
    keep(&world, record("dlv_long", "standard", signed, body, now())).await;
    let told = replayed(&world, "dlv_long").await;
    assert_eq!(told["verdict"], "accepted", "{told}");
}
