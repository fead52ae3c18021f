//! Who may do what: every operation of the document, by every kind of credential.
//!
//! The table is made from the document itself, so an operation that is added without a scope, or with another one than it
//! demands, is found here.

use std::collections::BTreeMap;

use quell::tokens::Scope;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::{Reply, World};

/// What a token that is limited to tenants or queues can have: an administrator could make one without limits.
const LIMITED: [Scope; 4] = [Scope::Ingest, Scope::Work, Scope::Read, Scope::Operate];

/// One operation of the document.
struct Operation {
    id: String,
    method: Method,
    path: String,
    /// Nothing for those that everybody may ask.
    scope: Option<Scope>,
}

fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(&quell_server::document()).expect("it is JSON");
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let security = operation["security"].as_array().expect("a list");
            assert_eq!(security.len(), 1, "{method} {path}");
            let scope = security[0]["token"].as_array().map(|scopes| {
                assert_eq!(scopes.len(), 1, "{method} {path}");
                scopes[0].as_str().expect("a text").parse().expect("a scope")
            });
            all.push(Operation {
                id: operation["operationId"].as_str().expect("an id").to_owned(),
                method: method.to_uppercase().parse().expect("a method"),
                path: path.clone(),
                scope,
            });
        }
    }
    all
}

impl Operation {
    /// With real names in its path, and a body that it takes.
    fn target(&self, names: &BTreeMap<&str, String>) -> String {
        let mut path = self.path.clone();
        for (name, value) in names {
            path = path.replace(&format!("{{{name}}}"), value);
        }
        let action = if self.id == "act_on_lane" { "cancel" } else { "pause" };
        path = path.replace("{action}", action);
        assert!(!path.contains('{'), "{}: a name is missing in {path}", self.id);
        let query = match self.id.as_str() {
            "get_event" | "edit_event" | "delete_event" => format!("?queue=jobs&key={}", names["key"]),
            "purge_dead" | "purge_delayed" | "purge_buffered" => "?queue=jobs&dry_run=true".to_owned(),
            "get_step" => format!("?token={}", names["token"]),
            _ => String::new(),
        };
        path + &query
    }

    fn body(&self, names: &BTreeMap<&str, String>) -> Option<Value> {
        let token: u64 = names["token"].parse().expect("a number");
        Some(match self.id.as_str() {
            "append" => json!({ "key": "walk", "payload": 1 }),
            "claim" => json!({ "worker": "walk", "queues": ["gate"] }),
            "extend" | "hold" => json!({ "token": token }),
            "put_step" => json!({ "token": token, "value": 1 }),
            "settle" => json!({ "token": token, "outcome": "succeeded" }),
            "act_on_lanes" | "redrive_dead" => json!({ "queue": "jobs", "dry_run": true }),
            "redrive_run" => json!({}),
            "edit_event" => json!({ "payload": 2 }),
            "patch_source" => json!({ "reset": true }),
            "put_source" => json!({}),
            "put_schedule" => json!({ "cron": "@daily", "queue": "jobs", "key": "k", "payload": 1 }),
            "make_token" => json!({ "name": "more", "scopes": ["read"] }),
            _ => return None,
        })
    }

    fn request(&self, world: &World, names: &BTreeMap<&str, String>) -> RequestBuilder {
        self.request_to(world, &self.target(names), names)
    }

    fn request_to(&self, world: &World, target: &str, names: &BTreeMap<&str, String>) -> RequestBuilder {
        let request = world.request(self.method.clone(), target);
        match self.body(names) {
            Some(body) => request.json(&body),
            None => request,
        }
    }

    /// The status alone: an answer may be a stream that does not end.
    async fn status(&self, world: &World, names: &BTreeMap<&str, String>, token: Option<&str>) -> u16 {
        let mut request = self.request(world, names);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.expect("the server answers").status().as_u16()
    }
}

/// Names of things that exist, all of this tenant.
async fn things(world: &World, tenant: &str, admin: &str) -> BTreeMap<&'static str, String> {
    let key = format!("{tenant}-secret");
    let post = async |path: &str, body: Value| {
        let reply = Reply::of(world.request(Method::POST, path).bearer_auth(admin).json(&body)).await;
        assert!(reply.status.is_success(), "{path}: {}", reply.text);
        reply.json()
    };
    let event = |id: &str| json!({ "key": key, "tenant": tenant, "id": id, "payload": { "says": key } });
    post("/v1/queues/jobs/events", event("e1")).await;
    let claim = json!({ "queues": ["jobs"], "worker": "w", "tenant": tenant });
    let claimed = post("/v1/claims", claim).await;
    let run = &claimed["claims"][0];
    // Buffered behind the run that is held.
    post("/v1/queues/jobs/events", event("e2")).await;
    let schedule = json!({ "cron": "@daily", "queue": "jobs", "key": key, "payload": key });
    let path = format!("/v1/schedules/daily?tenant={tenant}");
    let put = Reply::of(world.request(Method::PUT, &path).bearer_auth(admin).json(&schedule)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    BTreeMap::from([
        ("queue", "jobs".to_owned()),
        ("run_id", run["run_id"].as_str().expect("an id").to_owned()),
        ("token", run["token"].to_string()),
        ("event_id", "e2".to_owned()),
        ("name", "daily".to_owned()),
        ("id", "0000000000".to_owned()),
        ("key", key),
    ])
}

#[tokio::test]
async fn every_operation_demands_the_scope_that_its_document_names() {
    let world = World::new().await;
    let mut tokens = BTreeMap::new();
    for scope in Scope::ALL {
        tokens.insert(scope, world.token(scope.as_str(), &[scope], &[], &[]).await);
    }
    let names = things(&world, "", &tokens[&Scope::Admin]).await;
    let mut walked = 0;
    for operation in operations() {
        let id = &operation.id;
        let without = operation.status(&world, &names, None).await;
        let Some(wanted) = operation.scope else {
            assert_eq!(without, 200, "{id}");
            continue;
        };
        assert_eq!(without, 401, "{id} without a token");
        let (may, may_not): (Vec<Scope>, Vec<Scope>) =
            Scope::ALL.into_iter().partition(|scope| scope.allows(wanted));
        for scope in may_not {
            let status = operation.status(&world, &names, Some(&tokens[&scope])).await;
            assert_eq!(status, 403, "{id} needs {wanted} and was done with {scope}");
        }
        for scope in may {
            let status = operation.status(&world, &names, Some(&tokens[&scope])).await;
            assert!(!matches!(status, 401 | 403 | 405 | 500..), "{id} with {scope}: {status}");
        }
        walked += 1;
    }
    assert!(walked > 35, "{walked}");
    world.verify().await;
}

#[tokio::test]
async fn what_is_no_operation_of_the_document_leads_nowhere() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let known: Vec<String> = operations().iter().map(|o| format!("{} {}", o.method, o.path)).collect();
    let names = things(&world, "", &admin).await;
    for operation in operations() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            if known.contains(&format!("{method} {}", operation.path)) {
                continue;
            }
            let reply =
                Reply::of(world.request(method.clone(), &operation.target(&names)).bearer_auth(&admin)).await;
            // `/v1/lanes/{action}` has the form of nothing else; other paths may be another operation's.
            assert_eq!(reply.status, 405, "{method} {}: {}", operation.path, reply.text);
        }
    }
}

/// Every operation on one thing of another tenant, by its own name.
const THINGS: [&str; 13] = [
    "get_lane",
    "act_on_lane",
    "get_run",
    "cancel_run",
    "redrive_run",
    "get_event",
    "edit_event",
    "delete_event",
    "extend",
    "hold",
    "get_step",
    "put_step",
    "settle",
];

#[tokio::test]
async fn what_belongs_to_another_tenant_is_not_there() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let bob = world.token("bob", &LIMITED, &["bob"], &[]).await;
    let hers = things(&world, "ada", &admin).await;
    let of_both = things(&world, "bob", &admin).await;
    let before = world.get_as(&admin, &format!("/v1/runs/{}", hers["run_id"])).await.json();
    let mut met = 0;
    for operation in operations().iter().filter(|operation| THINGS.contains(&operation.id.as_str())) {
        let id = &operation.id;
        let request = operation.request(&world, &hers).bearer_auth(&bob);
        let reply = Reply::of(request).await;
        if id == "act_on_lane" {
            // His own lane of that name, which has nothing to cancel.
            assert_eq!(reply.json()["changed"], false, "{id}: {}", reply.text);
        } else {
            assert_eq!(reply.status, 404, "{id}: {}", reply.text);
        }
        assert!(!reply.text.contains("says"), "{id}: {}", reply.text);
        met += 1;
        let has_tenant = ["lane", "event"].iter().any(|thing| id.ends_with(thing));
        if has_tenant {
            let target = operation.target(&hers);
            let named = format!("{target}{}tenant=ada", if target.contains('?') { '&' } else { '?' });
            let reply = Reply::of(operation.request_to(&world, &named, &hers).bearer_auth(&bob)).await;
            assert_eq!((reply.status.as_u16(), reply.problem().as_str()), (403, "forbidden"), "{id}");
        }
        let own = operation.status(&world, &of_both, Some(&bob)).await;
        assert!(!matches!(own, 401 | 403), "{id} on his own: {own}");
    }
    assert_eq!(met, THINGS.len());
    let after = world.get_as(&admin, &format!("/v1/runs/{}", hers["run_id"])).await.json();
    assert_eq!(after["state"], before["state"]);
    assert_eq!(after["lease_until"], before["lease_until"]);
}

#[tokio::test]
async fn no_listing_shows_another_tenant() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let bob = world.token("bob", &[Scope::Read], &["bob"], &[]).await;
    things(&world, "ada", &admin).await;
    let lists = ["lanes?idle=true", "runs", "dead", "audit", "stats", "sources", "schedules", "workers"];
    for list in lists {
        let all = world.get_as(&admin, &format!("/v1/{list}")).await;
        let seen = world.get_as(&bob, &format!("/v1/{list}")).await;
        assert_eq!(seen.status, 200, "{list}: {}", seen.text);
        assert!(!seen.text.contains("ada"), "{list}: {}", seen.text);
        if !matches!(list, "dead" | "sources" | "workers") {
            assert!(all.text.contains("ada"), "{list} shows nothing at all: {}", all.text);
        }
        if !matches!(list, "stats" | "schedules" | "workers") {
            let joint = if list.contains('?') { '&' } else { '?' };
            let named = world.get_as(&bob, &format!("/v1/{list}{joint}tenant=ada")).await;
            assert_eq!((named.status.as_u16(), named.problem().as_str()), (403, "forbidden"), "{list}");
        }
    }
    let totals = world.get_as(&bob, "/metrics").await;
    assert_eq!(totals.status, 403, "totals over all tenants: {}", totals.text);
}

#[tokio::test]
async fn bulk_actions_stay_within_their_tenant() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let bob = world.token("bob", &LIMITED, &["bob"], &[]).await;
    let hers = things(&world, "ada", &admin).await;
    for (path, body) in [
        ("/v1/lanes/pause", json!({ "queue": "jobs" })),
        ("/v1/lanes/cancel", json!({ "queue": "jobs" })),
        ("/v1/dead/redrive", json!({ "queue": "jobs", "cancelled": true })),
    ] {
        let reply = Reply::of(world.request(Method::POST, path).bearer_auth(&bob).json(&body)).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["matched"]),
            (200, &json!(0)),
            "{path}: {}",
            reply.text
        );
        let mut named = body.clone();
        named["tenant"] = json!("ada");
        let reply = Reply::of(world.request(Method::POST, path).bearer_auth(&bob).json(&named)).await;
        assert_eq!(reply.status, 403, "{path}: {}", reply.text);
    }
    for path in ["/v1/buffered", "/v1/dead", "/v1/delayed"] {
        let reply =
            Reply::of(world.request(Method::DELETE, &format!("{path}?queue=jobs")).bearer_auth(&bob)).await;
        assert_eq!(
            (reply.status.as_u16(), &reply.json()["events"]),
            (200, &json!(0)),
            "{path}: {}",
            reply.text
        );
    }
    let paused = Reply::of(world.request(Method::POST, "/v1/queues/jobs/pause").bearer_auth(&bob)).await;
    assert_eq!(paused.status, 200, "{}", paused.text);
    let claim = json!({ "queues": ["jobs"], "worker": "w", "max": 100 });
    let claimed = Reply::of(world.request(Method::POST, "/v1/claims").bearer_auth(&bob).json(&claim)).await;
    assert_eq!(claimed.json()["claims"], json!([]));
    // Hers is as it was, and goes on.
    let settle = json!({ "token": hers["token"].parse::<u64>().expect("a number"), "outcome": "succeeded" });
    let path = format!("/v1/claims/{}/settle", hers["run_id"]);
    let settled = Reply::of(world.request(Method::POST, &path).bearer_auth(&admin).json(&settle)).await;
    assert_eq!(settled.json()["state"], "succeeded", "{}", settled.text);
    let claim = json!({ "queues": ["jobs"], "worker": "w", "tenant": "ada" });
    let claimed = Reply::of(world.request(Method::POST, "/v1/claims").bearer_auth(&admin).json(&claim)).await;
    assert_eq!(claimed.json()["claims"][0]["events"][0]["id"], "e2", "{}", claimed.text);
}

#[tokio::test]
async fn an_event_of_a_limited_token_is_its_tenants() {
    let world = World::new().await;
    let bob = world.token("bob", &[Scope::Ingest, Scope::Work, Scope::Read], &["bob"], &[]).await;
    let both = world.token("both", &[Scope::Ingest], &["ada", "bob"], &[]).await;
    let append = async |token: &str, body: Value| {
        Reply::of(world.request(Method::POST, "/v1/queues/jobs/events").bearer_auth(token).json(&body)).await
    };
    assert_eq!(append(&bob, json!({ "key": "k", "payload": 1 })).await.status, 202);
    assert_eq!(world.get_as(&bob, "/v1/lanes/jobs/k").await.json()["tenant"], "bob");
    let refused = append(&bob, json!({ "key": "k", "payload": 1, "tenant": "ada" })).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (403, "forbidden"));
    let refused = append(&bob, json!({ "key": "k", "payload": 1, "tenant": "" })).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let which = append(&both, json!({ "key": "k", "payload": 1 })).await;
    assert_eq!((which.status.as_u16(), which.problem().as_str()), (400, "invalid"));
    assert_eq!(append(&both, json!({ "key": "k", "payload": 1, "tenant": "ada" })).await.status, 202);
    // An array with one event of somebody else is refused whole.
    let mixed = json!([{ "key": "k", "payload": 1 }, { "key": "k", "payload": 1, "tenant": "ada" }]);
    assert_eq!(append(&bob, mixed).await.status, 403);
    assert_eq!(world.accepted().await, 2);
}

#[tokio::test]
async fn a_token_for_some_queues_reaches_no_others() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let chat = world.token("chat", &LIMITED, &[], &["chat"]).await;
    let hers = things(&world, "", &admin).await;
    for operation in operations().iter().filter(|operation| THINGS.contains(&operation.id.as_str())) {
        let status = operation.status(&world, &hers, Some(&chat)).await;
        assert_eq!(status, 404, "{}", operation.id);
    }
    for id in [
        "append",
        "act_on_queue",
        "act_on_lanes",
        "redrive_dead",
        "purge_dead",
        "purge_delayed",
        "purge_buffered",
    ] {
        let operation = operations().into_iter().find(|operation| operation.id == id).expect("it is there");
        assert_eq!(operation.status(&world, &hers, Some(&chat)).await, 403, "{id}");
    }
    let claim = json!({ "queues": ["jobs"], "worker": "w" });
    let claimed = Reply::of(world.request(Method::POST, "/v1/claims").bearer_auth(&chat).json(&claim)).await;
    assert_eq!(claimed.status, 403, "{}", claimed.text);
    for list in ["lanes?idle=true", "runs", "audit", "stats", "schedules"] {
        let seen = world.get_as(&chat, &format!("/v1/{list}")).await;
        assert_eq!(seen.status, 200, "{list}: {}", seen.text);
        assert!(!seen.text.contains("jobs"), "{list}: {}", seen.text);
    }
    let named = world.get_as(&chat, "/v1/runs?queue=jobs").await;
    assert_eq!(named.status, 403, "{}", named.text);
}

#[tokio::test]
async fn what_concerns_everybody_needs_a_token_without_limits() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let bob = world.token("bob", &LIMITED, &["bob"], &[]).await;
    let chat = world.token("chat", &LIMITED, &[], &["chat"]).await;
    let ask = async |method: Method, path: &str, body: Value, token: &str| {
        Reply::of(world.request(method, path).bearer_auth(token).json(&body)).await
    };
    for limits in [json!({ "tenants": ["bob"] }), json!({ "queues": ["chat"] })] {
        let mut wish = json!({ "name": "limited", "scopes": ["admin"] });
        wish.as_object_mut().expect("an object").extend(limits.as_object().expect("an object").clone());
        let reply = ask(Method::POST, "/v1/tokens", wish, &admin).await;
        assert_eq!((reply.status.as_u16(), reply.problem().as_str()), (400, "invalid"));
    }
    assert_eq!(ask(Method::PUT, "/v1/sources/shop", json!({ "shared": true }), &admin).await.status, 200);
    let shared = ask(Method::PATCH, "/v1/sources/shop", json!({ "enabled": false }), &bob).await;
    assert_eq!(shared.status, 403, "one tenant has stopped a source of all of them: {}", shared.text);
    assert_eq!(world.get_as(&admin, "/v1/sources/shop").await.json()["enabled"], true);
    let named = ask(Method::PATCH, "/v1/sources/shop?tenant=ada", json!({ "enabled": false }), &admin).await;
    assert_eq!((named.status.as_u16(), &named.json()["tenant"]), (200, &json!("")), "{}", named.text);
    // One that each tenant has for itself is its own to stop.
    assert_eq!(ask(Method::PUT, "/v1/sources/mail", json!({}), &admin).await.status, 200);
    let own = ask(Method::PATCH, "/v1/sources/mail", json!({ "enabled": false }), &bob).await;
    assert_eq!((own.status.as_u16(), &own.json()["enabled"]), (200, &json!(false)), "{}", own.text);
    assert_eq!(world.get_as(&admin, "/v1/sources/mail").await.json()["enabled"], true);
    let other = ask(Method::PATCH, "/v1/sources/mail?tenant=ada", json!({ "enabled": false }), &bob).await;
    assert_eq!(other.status, 403, "{}", other.text);
    let limited = ask(Method::PATCH, "/v1/sources/mail", json!({ "enabled": false }), &chat).await;
    assert_eq!(limited.status, 403, "a source governs lanes of every queue: {}", limited.text);
}

#[tokio::test]
async fn wrong_tokens_slow_their_address_down_and_right_ones_pass() {
    let world = World::new().await;
    let right = world.token("right", &[Scope::Read], &[], &[]).await;
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(world.get_as("quell_wrong", "/v1/lanes").await);
    }
    let (first, last) = (&answers[0], &answers[19]);
    assert_eq!((first.status.as_u16(), first.problem().as_str()), (401, "unauthorized"));
    assert_eq!((last.status.as_u16(), last.problem().as_str()), (429, "too-many-requests"));
    assert!(
        last.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1),
        "{:?}",
        last.headers
    );
    // On a host, and behind a proxy, all have one address: the mistake of one is not the fault of the others.
    assert_eq!(world.get_as(&right, "/v1/lanes").await.status, 200);
    assert_eq!(world.get_as("quell_wrong", "/v1/lanes").await.status, 429);
}

#[tokio::test]
async fn a_token_is_shown_once_and_gone_when_it_is_taken_away() {
    let world = World::new().await;
    let admin = world.token("admin", &[Scope::Admin], &[], &[]).await;
    let make =
        json!({ "name": "reader", "scopes": ["read"], "tenants": ["ada"], "expires_in_ms": 3_600_000 });
    let made = Reply::of(world.request(Method::POST, "/v1/tokens").bearer_auth(&admin).json(&make)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (text, id) = (made.json()["token"].as_str().expect("a text").to_owned(), made.json()["id"].clone());
    assert_eq!(made.header("cache-control"), "no-store");
    assert_eq!(world.get_as(&text, "/v1/lanes").await.status, 200);
    let listed = world.get_as(&admin, "/v1/tokens").await;
    assert!(listed.text.contains("reader") && !listed.text.contains(&text), "{}", listed.text);
    assert!(!listed.text.contains("hash"), "{}", listed.text);
    let path = format!("/v1/tokens/{}", id.as_str().expect("an id"));
    let gone = Reply::of(world.request(Method::DELETE, &path).bearer_auth(&admin)).await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    assert_eq!(world.get_as(&text, "/v1/lanes").await.status, 401);
    let again = Reply::of(world.request(Method::DELETE, &path).bearer_auth(&admin)).await;
    assert_eq!(again.status, 404, "{}", again.text);
}
