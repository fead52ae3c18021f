//! The dashboard as a browser without scripts sees it: who gets in, what is shown to whom, and what is refused.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::time::Duration;

use quell::tokens::Scope;
use quell_server::{AppPage, Shell};
use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::support::{CONFIG, Reply, World, until};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/// A browser that is logged in, or not.
struct Visitor<'a> {
    world: &'a World,
    cookie: Option<String>,
}

impl<'a> Visitor<'a> {
    fn stranger(world: &'a World) -> Self {
        Visitor { world, cookie: None }
    }

    async fn with(world: &'a World, token: &str) -> Self {
        let reply = log_in(world, token, "/").await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
        Visitor { world, cookie: Some(cookie_of(&reply)) }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.world.request(method, path);
        match &self.cookie {
            Some(cookie) => request.header(COOKIE, format!("other=1; {cookie}")),
            None => request,
        }
    }

    async fn get(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::GET, path)).await
    }

    /// As a form of our own page sends it.
    async fn post(&self, path: &str) -> Reply {
        Reply::of(self.request(Method::POST, path).header("Sec-Fetch-Site", "same-origin")).await
    }
}

async fn log_in(world: &World, token: &str, next: &str) -> Reply {
    let form: String = form_urlencoded::Serializer::new(String::new())
        .append_pair("token", token)
        .append_pair("next", next)
        .finish();
    let request = world.request(Method::POST, "/ui/login").header("Sec-Fetch-Site", "same-origin");
    Reply::of(request.header("Content-Type", "application/x-www-form-urlencoded").body(form)).await
}

fn cookie_of(reply: &Reply) -> String {
    reply.header(SET_COOKIE.as_str()).split(';').next().unwrap().to_owned()
}

/// A world with an operator, an event that waits and a failed run; the run's id.
async fn with_things(world: &World) -> String {
    let sent = world.engine.prepare("chat", "ada", json!({ "text": "hello" })).delay(Duration::ZERO);
    sent.send().await.unwrap();
    let robot = world.token("robot", &[Scope::Work], &[], &[]).await;
    failed_run(world, &robot, "bob", "it broke").await
}

/// Sends an event to `jobs`, takes it and fails it.
async fn failed_run(world: &World, token: &str, key: &str, error: &str) -> String {
    world.engine.send("jobs", key, json!({ "n": 1 })).await.unwrap();
    let body = json!({ "queues": ["jobs"], "worker": "w1", "wait_ms": 5000 });
    let claims = Reply::of(world.request(Method::POST, "/v1/claims").bearer_auth(token).json(&body)).await;
    let claim = claims.json()["claims"][0].clone();
    let run = claim["run_id"].as_str().unwrap().to_owned();
    let body = json!({ "token": claim["token"], "outcome": "failed", "error": error });
    let path = format!("/v1/claims/{run}/settle");
    let settled = Reply::of(world.request(Method::POST, &path).bearer_auth(token).json(&body)).await;
    assert_eq!(settled.status, StatusCode::OK, "{}", settled.text);
    run
}

#[tokio::test]
async fn a_token_opens_the_dashboard_and_its_cookie_stays_with_the_browser() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Operate], &[], &[]).await;
    let stranger = Visitor::stranger(&world).get("/ui/lanes?queue=chat&key_prefix=a").await;
    assert_eq!(stranger.status, StatusCode::SEE_OTHER);
    let next = "/ui/login?next=%2Fui%2Flanes%3Fqueue%3Dchat%26key_prefix%3Da";
    assert_eq!(stranger.header(LOCATION.as_str()), next);
    let form = Visitor::stranger(&world).get(next).await;
    assert_eq!(form.status, StatusCode::OK);
    assert!(form.text.contains(r#"value="/ui/lanes?queue=chat&#38;key_prefix=a""#), "{}", form.text);

    let reply = log_in(&world, &token, "/ui/lanes?queue=chat").await;
    assert_eq!((reply.status, reply.header("location")), (StatusCode::SEE_OTHER, "/ui/lanes?queue=chat"));
    let set = reply.header("set-cookie");
    assert!(
        set.starts_with("quell_session=") && set.ends_with("; HttpOnly; SameSite=Strict; Path=/"),
        "{set}"
    );
    assert!(!set.contains(&token), "the token itself is not kept");

    let visitor = Visitor { world: &world, cookie: Some(cookie_of(&reply)) };
    assert!(visitor.get("/").await.text.contains("All is well"));
    let again = visitor.get("/ui/login?next=/ui/runs").await;
    assert_eq!((again.status, again.header("location")), (StatusCode::SEE_OTHER, "/ui/runs"));

    let out = visitor.post("/ui/logout").await;
    assert_eq!((out.status, out.header("location")), (StatusCode::SEE_OTHER, "/ui/login"));
    assert!(out.header("set-cookie").starts_with("quell_session=; "));
    assert!(out.header("set-cookie").contains("Max-Age=0"));
}

#[tokio::test]
async fn wrong_tokens_are_told_plainly_and_slowed_down() {
    let world = World::new().await;
    let good = world.token("ops", &[Scope::Read], &[], &[]).await;
    let ingest = world.token("shop", &[Scope::Ingest, Scope::Work], &[], &[]).await;
    let reply = log_in(&world, &ingest, "/").await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(reply.text.contains("scope") && reply.header("set-cookie").is_empty());
    let mut refused = 0;
    for wrong in ["", "quell_", "<script>alert(1)</script>", &good[1..]].iter().cycle().take(30) {
        let reply = log_in(&world, wrong, "/").await;
        assert!(reply.header("set-cookie").is_empty());
        assert!(!reply.text.contains("<script>"), "what was typed is not shown");
        if reply.status == StatusCode::TOO_MANY_REQUESTS {
            assert!(reply.header("retry-after").parse::<u64>().unwrap() >= 1);
            refused += 1;
        } else {
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
            assert!(reply.text.contains("misspelt"), "{}", reply.text);
        }
    }
    assert!(refused > 0, "thirty guesses in a row are too many");
    let reply = log_in(&world, &good, "/").await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "whoever has the right one does not wait for others");
}

#[tokio::test]
async fn the_token_comes_in_a_form_and_never_in_an_address() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Read], &[], &[]).await;
    let in_address = Visitor::stranger(&world).get(&format!("/ui/login?token={token}")).await;
    assert_eq!((in_address.status, in_address.header("set-cookie")), (StatusCode::OK, ""));
    let in_address = Visitor::stranger(&world).get(&format!("/?token={token}")).await;
    assert_eq!(in_address.status, StatusCode::SEE_OTHER);
    let request = world.request(Method::POST, "/ui/login").json(&json!({ "token": token }));
    assert_eq!(Reply::of(request).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let huge = log_in(&world, &"x".repeat(20_000), "/").await;
    assert_eq!(huge.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_cookie_that_was_changed_or_is_too_old_or_whose_token_is_gone_is_worth_nothing() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Read], &[], &[]).await;
    let other = world.token("other", &[Scope::Read], &[], &[]).await;
    let good = Visitor::with(&world, &token).await.cookie.unwrap();
    let value = good.strip_prefix("quell_session=").unwrap();
    let parts: Vec<&str> = value.split('.').collect();
    let [id, expiry, seal] = parts[..] else { panic!("{value}") };
    let other = Visitor::with(&world, &other).await.cookie.unwrap();
    let other_id = other.strip_prefix("quell_session=").unwrap().split('.').next().unwrap();
    let later = expiry.parse::<i64>().unwrap() + 1;
    let about = world.engine.tokens().await.unwrap().into_iter().find(|known| known.id == id).unwrap();
    let old = sealed(&format!("{id}.1000"), &about.hash);
    assert_eq!(sealed(&format!("{id}.{expiry}"), &about.hash), value, "it is sealed as this test seals it");
    for bad in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        format!("{id}.{expiry}"),
        format!("{id}.{expiry}."),
        format!("{id}.{later}.{seal}"),
        format!("{other_id}.{expiry}.{seal}"),
        format!("{id}.{expiry}.{}", seal.to_uppercase()),
        format!("{id}.{expiry}.{}", "0".repeat(seal.len())),
        format!("{id}.{expiry}.{seal}0"),
        format!("{id}.x{expiry}.{seal}"),
        token.clone(),
        old,
    ] {
        let visitor = Visitor { world: &world, cookie: Some(format!("quell_session={bad}")) };
        let reply = visitor.get("/").await;
        assert_eq!((reply.status, reply.header("location")), (StatusCode::SEE_OTHER, "/ui/login"), "{bad}");
    }
    let visitor = Visitor { world: &world, cookie: Some(good.clone()) };
    assert_eq!(visitor.get("/").await.status, StatusCode::OK);
    world.engine.revoke_token(id).await.unwrap();
    // Servers know it within two seconds.
    let deadline = tokio::time::timeout(Duration::from_secs(60), async {
        while visitor.get("/").await.status != StatusCode::SEE_OTHER {
            quell::clock::sleep(Duration::from_millis(100)).await;
        }
    });
    deadline.await.expect("a token that was taken away takes its logins with it");
}

fn sealed(signed: &str, key: &str) -> String {
    use hmac::{Hmac, KeyInit, Mac};
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
    mac.update(signed.as_bytes());
    let seal: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{signed}.{seal}")
}

#[tokio::test]
async fn pages_lead_to_the_login_and_what_scripts_fetch_is_refused() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Read], &[], &[]).await;
    let stranger = Visitor::stranger(&world);
    for path in ["/", "/ui/lanes", "/ui/lanes/chat/ada", "/ui/runs", "/ui/runs/run_1_1", "/ui/nowhere"] {
        let reply = stranger.get(path).await;
        assert_eq!(reply.status, StatusCode::SEE_OTHER, "{path}");
        assert!(reply.header("location").starts_with("/ui/login"), "{path}");
        let fragment = Reply::of(stranger.request(Method::GET, path).header("HX-Request", "true")).await;
        assert_eq!(fragment.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(stranger.get("/ui/stream").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(stranger.post("/ui/lanes/chat/ada/flush").await.status, StatusCode::UNAUTHORIZED);
    for elsewhere in
        ["//evil.test", "https://evil.test", "/\\evil.test", "/ui//evil.test", "javascript:alert(1)"]
    {
        let reply = log_in(&world, &token, elsewhere).await;
        assert_eq!((reply.status, reply.header("location")), (StatusCode::SEE_OTHER, "/"), "{elsewhere}");
        let next: String = form_urlencoded::byte_serialize(elsewhere.as_bytes()).collect();
        let form = stranger.get(&format!("/ui/login?next={next}")).await;
        assert!(form.text.contains(r#"name="next" value="/""#), "{}", form.text);
    }
}

#[tokio::test]
async fn on_loopback_without_tokens_nobody_has_to_log_in() {
    let world = World::new().await;
    let stranger = Visitor::stranger(&world);
    let page = stranger.get("/").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("quell send hello world"), "the first page says what to do: {}", page.text);
    assert!(page.text.contains(&format!("http://{}/v1/queues/hello/events", world.address)), "{}", page.text);
    world.append("chat", "ada", json!("x")).await;
    assert_eq!(stranger.post("/ui/lanes/chat/ada/pause").await.status, StatusCode::SEE_OTHER);
    assert!(stranger.get("/ui/lanes/chat/ada").await.text.contains("Lane paused by api"));
}

#[tokio::test]
async fn forms_of_other_sites_are_refused() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Operate], &[], &[]).await;
    with_things(&world).await;
    let visitor = Visitor::with(&world, &token).await;
    let host = world.address.to_string();
    let (ours, theirs) = (format!("http://{host}"), "https://evil.test".to_owned());
    let table: [(&[(&str, &str)], bool); 9] = [
        (&[("Sec-Fetch-Site", "same-origin")], true),
        (&[("Sec-Fetch-Site", "none")], true),
        (&[("Sec-Fetch-Site", "same-site")], false),
        (&[("Sec-Fetch-Site", "cross-site")], false),
        (&[("Sec-Fetch-Site", "cross-site"), ("Origin", &ours)], false),
        (&[("Origin", &ours)], true),
        (&[("Origin", &theirs)], false),
        (&[("Origin", "null")], false),
        (&[], false),
    ];
    for path in ["/ui/lanes/chat/ada/pause", "/ui/logout", "/ui/login"] {
        for (headers, wanted) in table {
            let mut request = visitor.request(Method::POST, path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let reply = Reply::of(request).await;
            if wanted {
                assert_ne!(reply.status, StatusCode::FORBIDDEN, "{path} {headers:?} {}", reply.text);
            } else {
                assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
                assert_eq!(reply.problem(), "forbidden");
            }
        }
    }
    for path in ["/ui/logout", "/ui/lanes/chat/ada/pause", "/ui/runs/run_1_1/redrive"] {
        let reply = visitor.get(path).await;
        assert_eq!(reply.status, StatusCode::METHOD_NOT_ALLOWED, "{path} changes things: only by POST");
    }
}

#[tokio::test]
async fn every_page_forbids_what_it_does_not_need() {
    let world = World::new().await;
    let token = world.token("ops", &[Scope::Operate], &[], &[]).await;
    let run = with_things(&world).await;
    let visitor = Visitor::with(&world, &token).await;
    let run = format!("/ui/runs/{run}");
    let pages = [
        "/",
        "/ui/lanes",
        "/ui/lanes?queue=CHAT",
        "/ui/lanes/chat/ada",
        "/ui/runs",
        &run,
        "/ui/deliveries",
        "/ui/login",
    ];
    let problems = [
        "/ui/nowhere",
        "/ui/runs/run_zzz_1",
        "/ui/runs?state=odd",
        "/ui/lanes/chat/nobody",
        "/ui",
        "/ui/logout",
    ];
    for path in pages.iter().chain(&problems) {
        let reply = visitor.get(path).await;
        assert_eq!(reply.header("content-security-policy"), POLICY, "{path}");
        assert_eq!(reply.header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(reply.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(reply.header("cache-control"), "no-store", "{path}");
        let inline = ["<script>", "<style", " style=", " onclick=", "javascript:"];
        assert_eq!(inline.map(|text| reply.text.contains(text)), [false; 5], "{path}: {}", reply.text);
    }
    for path in pages.iter().filter(|path| **path != "/ui/login") {
        assert_eq!(visitor.get(path).await.status, StatusCode::OK, "{path}");
    }
    for path in ["/ui/nowhere", "/ui/lanes/chat/nobody", "/ui/runs/run_1_999"] {
        let reply = visitor.get(path).await;
        assert_eq!(reply.status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8", "{path}");
    }
}

#[tokio::test]
async fn files_are_kept_by_browsers_until_they_change() {
    let world = World::new().await;
    let page = world.get("/").await.text;
    for name in ["quell.css", "quell.js", "htmx.min.js", "mark.svg"] {
        let start = page.find(&format!("/ui/assets/{name}?v=")).unwrap_or_else(|| panic!("{name}: {page}"));
        let place = page[start..].split('"').next().unwrap();
        let reply = world.get(place).await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.header("cache-control"), "public, max-age=31536000, immutable");
        assert_eq!(reply.header("content-security-policy"), POLICY);
        let tag = reply.header("etag").to_owned();
        let again = Reply::of(world.request(Method::GET, place).header("If-None-Match", &tag)).await;
        assert_eq!((again.status, again.text.len()), (StatusCode::NOT_MODIFIED, 0));
        assert_eq!(world.get(&format!("/ui/assets/{name}")).await.header("cache-control"), "no-cache");
    }
    assert_eq!(world.get("/ui/assets/..%2FCargo.toml").await.status, StatusCode::NOT_FOUND);
}

#[test]
fn the_copy_of_htmx_is_the_one_that_the_readme_names() {
    let digest = Sha256::digest(include_bytes!("../../assets/htmx.min.js"));
    let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(include_str!("../../assets/README.md").contains(&sum), "{sum}");
}

#[tokio::test]
async fn what_users_write_is_text_and_nothing_else() {
    let world = World::new().await;
    let operator = world.token("<b>ops</b>", &[Scope::Operate], &[], &[]).await;
    let robot = world.token("robot", &[Scope::Work], &[], &[]).await;
    let visitor = Visitor::with(&world, &operator).await;
    for bad in [
        "<script>alert(1)</script>",
        "\"><svg onload=alert(1)>",
        "javascript:alert(1)",
        "' autofocus onfocus='alert(1)",
        "</pre></textarea><img src=x onerror=alert(1)>",
        "{{ 7*7 }} hx-get=\"/ui/logout\"",
    ] {
        let payload = json!({ "text": bad });
        let incoming =
            quell::Incoming::new("chat", bad, quell::quell_core::event::Payload::of(&payload)).unwrap();
        world.engine.append(vec![incoming]).await.unwrap();
        let run = failed_run(&world, &robot, bad, bad).await;
        let key: String = percent(bad);
        let pages = [
            "/".to_owned(),
            "/ui/lanes".to_owned(),
            format!("/ui/lanes?key_prefix={key}"),
            format!("/ui/lanes/chat/{key}"),
            format!("/ui/lanes/jobs/{key}"),
            format!("/ui/lanes/nothing/{key}"),
            "/ui/runs".to_owned(),
            format!("/ui/runs?key={key}"),
            format!("/ui/runs?state={key}"),
            format!("/ui/runs/{run}"),
            format!("/ui/login?next={key}"),
            format!("/ui/{key}"),
        ];
        for path in pages {
            let text = visitor.get(&path).await.text;
            for raw in [
                "<script>",
                "<svg onload",
                "<img src=x",
                "href=\"javascript:",
                "<b>ops",
                "\" onload",
                "' autofocus",
            ] {
                assert!(!text.contains(raw), "{path} has {raw}: {text}");
            }
            let hx: Vec<_> = text.match_indices("hx-get=\"").collect();
            assert!(hx.len() <= 1, "{path}: {text}");
        }
        let shown = visitor.get(&format!("/ui/runs/{run}")).await.text;
        assert!(shown.contains("<pre class=\"payload\""), "{shown}");
    }
    let lanes = visitor.get("/ui/lanes").await.text;
    assert!(lanes.contains("&#60;script&#62;alert(1)&#60;/script&#62;"), "it is there, as text: {lanes}");
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_limited_token_sees_only_what_is_its_own() {
    let world = World::new().await;
    for (tenant, key) in [("acme", "acme-key"), ("globex", "globex-key")] {
        let of = quell::quell_core::event::Tenant::new(tenant).unwrap();
        for queue in ["chat", "jobs"] {
            let payload = quell::quell_core::event::Payload::of(&json!(tenant));
            let mut incoming = quell::Incoming::new(queue, key, payload).unwrap();
            incoming.lane = incoming.lane.of(of.clone());
            world.engine.append(vec![incoming]).await.unwrap();
        }
    }
    let acme = world.token("acme", &[Scope::Operate], &["acme"], &["chat"]).await;
    let several = world.token("both", &[Scope::Read], &["acme", "globex"], &[]).await;
    let visitor = Visitor::with(&world, &acme).await;
    for path in ["/", "/ui/lanes", "/ui/runs", "/ui/lanes?queue=chat&tenant=acme"] {
        let text = visitor.get(path).await.text;
        assert!(text.contains("acme"), "{path}: {text}");
        assert!(!text.contains("globex") && !text.contains(">jobs<"), "{path}: {text}");
        assert!(!text.contains("quell.db"), "where the store is, is for those who see everything: {text}");
    }
    for path in ["/ui/lanes?tenant=globex", "/ui/lanes?queue=jobs", "/ui/runs?tenant=globex"] {
        let text = visitor.get(path).await.text;
        assert!(text.contains("this token is for") && !text.contains("globex-key"), "{path}: {text}");
    }
    assert_eq!(visitor.get("/ui/lanes/chat/acme-key").await.status, StatusCode::OK);
    for path in
        ["/ui/lanes/chat/globex-key?tenant=globex", "/ui/lanes/chat/globex-key", "/ui/lanes/jobs/acme-key"]
    {
        assert_eq!(visitor.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    let runs =
        world.engine.runs(quell::quell_core::inspect::RunFilter { limit: 10, ..Default::default() }).await;
    for run in runs.unwrap().items {
        let own = run.lane.tenant.as_str() == "acme" && run.lane.queue.as_str() == "chat";
        let wanted = if own { StatusCode::OK } else { StatusCode::NOT_FOUND };
        assert_eq!(visitor.get(&format!("/ui/runs/{}", run.id)).await.status, wanted, "{}", run.lane);
        if !own {
            let redrive = visitor.post(&format!("/ui/runs/{}/redrive", run.id)).await;
            assert_eq!(redrive.status, StatusCode::NOT_FOUND);
        }
    }
    let pause = visitor.post("/ui/lanes/chat/globex-key/pause?tenant=globex").await;
    assert_eq!(pause.status, StatusCode::NOT_FOUND);
    let visitor = Visitor::with(&world, &several).await;
    let page = visitor.get("/ui/lanes").await.text;
    assert!(page.contains("name one") && page.contains("<form method=\"get\""), "{page}");
    assert!(visitor.get("/ui/lanes?tenant=globex").await.text.contains("globex-key"));
}

#[tokio::test]
async fn one_who_may_only_look_has_no_buttons_and_cannot_push_them() {
    let world = World::new().await;
    let reader = world.token("reader", &[Scope::Read], &[], &[]).await;
    let operator = world.token("operator", &[Scope::Operate], &[], &[]).await;
    let run = with_things(&world).await;
    let (reader, operator) = (Visitor::with(&world, &reader).await, Visitor::with(&world, &operator).await);
    let run_page = format!("/ui/runs/{run}");
    for (page, button) in [("/ui/lanes/chat/ada", "id=\"flush\""), (run_page.as_str(), "id=\"redrive\"")] {
        assert!(operator.get(page).await.text.contains(button), "{page}");
        assert!(!reader.get(page).await.text.contains(button), "{page}");
    }
    let redrive = format!("/ui/runs/{run}/redrive");
    for path in ["flush", "pause", "resume", "cancel"]
        .map(|a| format!("/ui/lanes/chat/ada/{a}"))
        .iter()
        .chain([&redrive])
    {
        let reply = reader.post(path).await;
        assert_eq!((reply.status, reply.problem().as_str()), (StatusCode::FORBIDDEN, "forbidden"), "{path}");
    }
    let lane = operator.get("/ui/lanes/chat/ada").await.text;
    assert!(lane.contains("Buffered 1"), "nothing has happened to it: {lane}");

    let paused = operator.post("/ui/lanes/chat/ada/pause").await;
    assert_eq!(
        (paused.status, paused.header("location")),
        (StatusCode::SEE_OTHER, "/ui/lanes/chat/ada?done=pause")
    );
    let lane = operator.get(paused.header("location")).await.text;
    assert!(lane.contains("Lane paused by token:operator") && lane.contains("id=\"resume\""), "{lane}");
    let again = operator.post("/ui/lanes/chat/ada/pause").await;
    assert!(again.header("location").ends_with("?done=nothing"));
    assert!(operator.post("/ui/lanes/chat/ada/explode").await.status == StatusCode::NOT_FOUND);
    let redriven = operator.post(&redrive).await;
    assert_eq!(redriven.status, StatusCode::SEE_OTHER);
    let page = operator.get(redriven.header("location")).await.text;
    assert!(page.contains("Redriven from") && page.contains(&run), "{page}");
    let old = operator.get(&run_page).await.text;
    assert!(old.contains("Redriven into") && !old.contains("id=\"redrive\""), "{old}");
}

#[tokio::test]
async fn pages_go_on_and_the_part_that_changes_comes_alone() {
    let world = World::new().await;
    for n in 0..60 {
        world.engine.send("chat", &format!("key-{n:02}"), json!(n)).await.unwrap();
    }
    let first = world.get("/ui/lanes?queue=chat").await.text;
    let next = first
        .split("href=\"")
        .find_map(|part| part.strip_prefix("/ui/lanes?").filter(|p| p.contains("cursor=")))
        .unwrap();
    let next = format!("/ui/lanes?{}", next.split('"').next().unwrap().replace("&#38;", "&"));
    let second = world.get(&next).await.text;
    let rows = |text: &str| text.matches("/ui/lanes/chat/key-").count();
    assert_eq!((rows(&first), rows(&second)), (50, 10));
    assert!(next.contains("q=queue%3Achat") && second.contains("First page"));
    let fragment =
        Reply::of(world.request(Method::GET, "/ui/lanes?queue=chat").header("HX-Request", "true")).await;
    assert_eq!((fragment.status, rows(&fragment.text)), (StatusCode::OK, 50));
    assert!(!fragment.text.contains("<html") && !fragment.text.contains("<form"), "{}", fragment.text);
    let stream = world.request(Method::GET, "/ui/stream").send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
}

#[tokio::test]
async fn an_application_adds_pages_behind_the_same_login() {
    use axum::extract::Extension;
    use axum::routing::{get, post};
    let shown = async |Extension(shell): Extension<Shell>| shell.page("Orders", "<p>No orders yet.</p>");
    let router = axum::Router::new().route("/", get(shown)).route("/clear", post(async || "done"));
    let world = World::with(CONFIG, |mut options| {
        options.pages.push(AppPage { name: "orders", title: "Orders", router });
        options
    })
    .await;
    let reader = world.token("reader", &[Scope::Read], &[], &[]).await;
    let operator = world.token("operator", &[Scope::Operate], &[], &[]).await;
    assert_eq!(Visitor::stranger(&world).get("/ui/app/orders").await.status, StatusCode::SEE_OTHER);
    let (reader, operator) = (Visitor::with(&world, &reader).await, Visitor::with(&world, &operator).await);
    for path in ["/ui/app/orders", "/ui/app/orders/"] {
        let page = reader.get(path).await;
        assert_eq!((page.status, page.header("content-security-policy")), (StatusCode::OK, POLICY), "{path}");
        assert!(
            page.text.contains("No orders yet.") && page.text.contains("aria-current=\"page\">Orders"),
            "{}",
            page.text
        );
    }
    assert!(reader.get("/").await.text.contains("href=\"/ui/app/orders\""));
    assert_eq!(reader.post("/ui/app/orders/clear").await.status, StatusCode::FORBIDDEN);
    assert_eq!(operator.post("/ui/app/orders/clear").await.text, "done");
    let other = operator.request(Method::POST, "/ui/app/orders/clear").header("Sec-Fetch-Site", "cross-site");
    assert_eq!(Reply::of(other).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn deliveries_are_shown_with_the_reason_and_taken_in_again_by_those_who_may() {
    let world = crate::senders::hooked("").await;
    let forged = "{\"key\":\"k\",\"x\":\"<script>alert(1)</script>\"}";
    world.deliver("github", &crate::senders::github("not our secret at all", forged), forged).await;
    let good = "{\"key\":\"ada\"}";
    world.deliver("github", &crate::senders::github(crate::senders::GITHUB, good), good).await;
    until("both are remembered", async || world.engine.deliveries().await.unwrap().len() == 2).await;
    let records = world.engine.deliveries().await.unwrap();
    let refused = &records.iter().find(|record| record.status == 401).unwrap().id;
    let taken = &records.iter().find(|record| record.status == 200).unwrap().id;

    let looker = world.token("looker", &[Scope::Read], &[], &[]).await;
    let operator = world.token("ops", &[Scope::Operate], &[], &[]).await;
    let limited = world.token("acme", &[Scope::Read], &["acme"], &[]).await;
    let (looker, operator) = (Visitor::with(&world, &looker).await, Visitor::with(&world, &operator).await);

    let list = looker.get("/ui/deliveries").await;
    assert_eq!(list.status, StatusCode::OK);
    for part in [
        refused.as_str(),
        taken,
        "the signature is not that of these bytes",
        "state refused",
        "state accepted",
    ] {
        assert!(list.text.contains(part), "{part}: {}", list.text);
    }
    let some = looker.get("/ui/deliveries?verdict=refused&endpoint=github").await.text;
    assert!(some.contains(refused.as_str()) && !some.contains(taken.as_str()), "{some}");
    assert_eq!(looker.get("/ui/deliveries?verdict=nonsense").await.status, StatusCode::BAD_REQUEST);
    let page = looker.get(&format!("/ui/deliveries/{refused}")).await.text;
    assert!(page.contains("bad_signature") && page.contains("&#60;script&#62;alert"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains("id=\"replay\""), "{page}");
    assert_eq!(looker.get("/ui/deliveries/dlv_none").await.status, StatusCode::NOT_FOUND);
    let other = Visitor::with(&world, &limited).await.get(&format!("/ui/deliveries/{taken}")).await;
    assert_eq!(other.status, StatusCode::FORBIDDEN);

    let again = format!("/ui/deliveries/{taken}/replay");
    assert_eq!(looker.post(&again).await.status, StatusCode::FORBIDDEN);
    assert!(operator.get(&format!("/ui/deliveries/{taken}")).await.text.contains("id=\"replay\""));
    let replayed = operator.post(&again).await;
    assert_eq!(replayed.status, StatusCode::SEE_OTHER, "{}", replayed.text);
    let page = operator.get(replayed.header(LOCATION.as_str())).await.text;
    assert!(
        page.contains("token:ops") && page.contains(taken.as_str()) && page.contains("accepted"),
        "{page}"
    );
    assert_eq!(world.accepted().await, 2, "the replay is an event of its own");
}
