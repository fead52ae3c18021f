//! Pages that an application adds: framed, protected and refused as the server's own.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::sync::Arc;

use askama::Template;
use async_trait::async_trait;
use quell::quell_core::error::{ErrorKind, StoreError};
use quell::tokens::Scope;
use quell_server::pages::{AppPage, Page, PageError, PageRequest, Section};
use quell_server::{Server, ServerOptions};
use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::{Method, StatusCode};

use crate::support::{CONFIG, Reply, World, settings};

#[derive(Template)]
#[template(source = "<p id=\"{{ id }}\">{{ text }}</p>", ext = "html")]
struct Line<'a> {
    id: &'a str,
    text: &'a str,
}

/// Says what it was asked.
struct Echo {
    name: &'static str,
}

#[async_trait]
impl Section for Echo {
    fn name(&self) -> &'static str {
        self.name
    }

    fn title(&self) -> &'static str {
        "Echo & co"
    }

    async fn page(&self, request: PageRequest) -> Result<Page, PageError> {
        assert!(request.now.as_millis() > 0 && request.base.ends_with(self.name));
        match request.path()[..] {
            [] => Ok(Page::new("First")
                .fixed(&Line { id: "stays", text: "fixed" })
                .live(&Line { id: "changes", text: request.field("q").unwrap_or("nothing") })),
            ["only-fixed"] => Ok(Page::new("Fixed").fixed(&Line { id: "stays", text: "fixed" })),
            ["broken"] => Err(PageError::Failed("the secret of the log".to_owned())),
            ["wrong"] => Err(PageError::invalid("that <b>makes</b> no sense")),
            ["gone"] => Err(StoreError::new(ErrorKind::Unavailable, "no disk at /secret/place").into()),
            ["say", text] => Ok(Page::new(text).live(&Line { id: "said", text })),
            _ => Err(PageError::not_found(format!("nobody is at {:?}", request.segments))),
        }
    }
}

async fn world() -> World {
    World::with(CONFIG, |mut options| {
        options.pages.push(AppPage::of(Arc::new(Echo { name: "echo" })));
        options
    })
    .await
}

/// The cookie of one who has logged in with this token.
async fn cookie(world: &World, token: &str) -> String {
    let body: String = form_urlencoded::Serializer::new(String::new()).append_pair("token", token).finish();
    let request = world.request(Method::POST, "/ui/login").header("Sec-Fetch-Site", "same-origin");
    let request = request.header("Content-Type", "application/x-www-form-urlencoded").body(body);
    let reply = Reply::of(request).await;
    assert_eq!(reply.status, StatusCode::SEE_OTHER, "{}", reply.text);
    reply.header(SET_COOKIE.as_str()).split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_section_is_in_the_navigation_and_in_the_frame() {
    let world = world().await;
    let entry = "<a href=\"/ui/app/echo\" class=\"wide\">Echo &#38; co</a>";
    assert!(world.get("/").await.text.contains(entry));
    for path in ["/ui/app/echo", "/ui/app/echo/", "/ui/app/echo?q=%3Cscript%3Ealert(1)%3C/script%3E"] {
        let page = world.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        for part in [
            "<title>First · Quell</title>",
            "href=\"/ui/app/echo\" class=\"wide\" aria-current=\"page\">Echo",
            "<p id=\"stays\">fixed</p>",
        ] {
            assert!(page.text.contains(part), "{path} {part}: {}", page.text);
        }
        assert!(!page.text.contains("<script>"), "{}", page.text);
        assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        let policy = page.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe"));
    }
    let title = "%3C%2Ftitle%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let page = world.get(&format!("/ui/app/echo/say/{title}")).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("<title>&#60;/title&#62;&#60;script&#62;alert(1)"), "{}", page.text);
    assert!(!page.text.contains("<script>"), "{}", page.text);
}

#[tokio::test]
async fn what_changes_is_fetched_alone_by_the_same_address() {
    let world = world().await;
    let whole = world.get("/ui/app/echo?q=a%26b").await.text;
    assert!(whole.contains("hx-get=\"/ui/app/echo?q=a%26b\""), "{whole}");
    let ask = |path| Reply::of(world.request(Method::GET, path).header("HX-Request", "true"));
    let part = ask("/ui/app/echo?q=a%26b").await;
    assert_eq!(part.status, StatusCode::OK);
    assert!(part.text.starts_with("<span id=\"clock\" data-now=\""), "{}", part.text);
    assert!(part.text.ends_with("<p id=\"changes\">a&#38;b</p>"), "{}", part.text);
    assert!(!world.get("/ui/app/echo/only-fixed").await.text.contains("id=\"live\""));
    assert_eq!(ask("/ui/app/echo/nowhere").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn whoever_may_not_look_at_everything_does_not_get_in() {
    let world = world().await;
    let reader = world.token("reader", &[Scope::Read], &[], &[]).await;
    let tenant = world.token("tenant", &[Scope::Operate], &["acme"], &[]).await;
    let queue = world.token("queue", &[Scope::Operate], &[], &["jobs"]).await;

    let stranger = world.get("/ui/app/echo/say/x?q=1").await;
    assert_eq!(stranger.status, StatusCode::SEE_OTHER);
    assert_eq!(stranger.header("location"), "/ui/login?next=%2Fui%2Fapp%2Fecho%2Fsay%2Fx%3Fq%3D1");
    let script = world.request(Method::GET, "/ui/app/echo").header("HX-Request", "true");
    assert_eq!(Reply::of(script).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(world.get_as(&reader, "/ui/app/echo").await.status, StatusCode::SEE_OTHER, "a page, no API");

    let get = async |cookie: &str, path| {
        Reply::of(world.request(Method::GET, path).header(COOKIE, cookie.to_owned())).await
    };
    let reader = cookie(&world, &reader).await;
    assert_eq!(get(&reader, "/ui/app/echo").await.status, StatusCode::OK);
    for limited in [tenant, queue] {
        let limited = cookie(&world, &limited).await;
        let refused = get(&limited, "/ui/app/echo").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
        assert!(!refused.text.contains("stays") && refused.text.contains("limited"), "{}", refused.text);
        assert!(!get(&limited, "/ui/lanes").await.text.contains("/ui/app/echo"), "it is not even offered");
    }
}

#[tokio::test]
async fn a_section_only_ever_looks() {
    let world = world().await;
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        for path in ["/ui/app/echo", "/ui/app/echo/say/x"] {
            let request = world.request(method.clone(), path);
            let ours = Reply::of(request.try_clone().unwrap().header("Sec-Fetch-Site", "same-origin")).await;
            assert_eq!(ours.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(ours.header("allow"), "GET, HEAD");
            let theirs = Reply::of(request.header("Sec-Fetch-Site", "cross-site")).await;
            assert_eq!(theirs.status, StatusCode::FORBIDDEN, "{method} {path}");
        }
    }
    let head = Reply::of(world.request(Method::HEAD, "/ui/app/echo")).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));
    let elsewhere = world.request(Method::GET, "/ui/app/echo").header("Host", "evil.test");
    assert_eq!(Reply::of(elsewhere).await.status, StatusCode::MISDIRECTED_REQUEST);
}

#[tokio::test]
async fn what_goes_wrong_is_a_page_of_the_server() {
    let world = world().await;
    let cases = [
        ("/ui/app/echo/nowhere", StatusCode::NOT_FOUND, "nobody is at"),
        ("/ui/app/echo//x", StatusCode::NOT_FOUND, "nobody is at"),
        ("/ui/app/nobody", StatusCode::NOT_FOUND, "there is no such page"),
        ("/ui/app/echoes", StatusCode::NOT_FOUND, "there is no such page"),
        ("/ui/app", StatusCode::NOT_FOUND, "there is no such page"),
        ("/ui/app/echo/broken", StatusCode::INTERNAL_SERVER_ERROR, "log says more"),
        ("/ui/app/echo/wrong", StatusCode::BAD_REQUEST, "that &#60;b&#62;makes&#60;/b&#62; no sense"),
        ("/ui/app/echo/gone", StatusCode::SERVICE_UNAVAILABLE, "try again"),
        ("/ui/app/echo/%ff", StatusCode::BAD_REQUEST, "not UTF-8"),
        ("/ui/app/echo?q=%ff", StatusCode::BAD_REQUEST, "not UTF-8"),
    ];
    for (path, status, text) in cases {
        let reply = world.get(path).await;
        assert_eq!(reply.status, status, "{path}");
        assert!(reply.text.starts_with("<!doctype html>") && reply.text.contains(text), "{}", reply.text);
        assert!(!reply.text.contains("secret"), "{}", reply.text);
        assert!(reply.header("content-security-policy").starts_with("default-src 'none'"), "{path}");
    }
}

#[tokio::test]
async fn a_section_stays_below_its_own_address() {
    let world = world().await;
    // Sent as it stands: clients would tidy it up.
    for path in ["/ui/app/echo/../../lanes", "/ui/app/echo/%2e%2e/%2e%2e/lanes", "/ui/app/echo/..%2flanes"] {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.address);
        let reply = world.send_raw(bytes.as_bytes()).await;
        assert_eq!(reply.status(), 404, "{path}: {}", reply.text);
        assert!(reply.text.contains("nobody is at"), "it is a name like any other: {}", reply.text);
    }
    for name in ["", "..", "a/b", "../lanes", "{all}", "{*rest}", "Echo", "é", "a b"] {
        let folder = tempfile::tempdir().unwrap();
        let engine = quell::Engine::open(settings(CONFIG, &folder)).await.unwrap();
        let mut options = ServerOptions::at("127.0.0.1:0");
        options.pages.push(AppPage::of(Arc::new(Echo { name })));
        let bound = tokio::spawn(async move { Server::bind(engine, options).await.is_ok() }).await;
        assert!(bound.is_err_and(|error| error.is_panic()), "{name:?} is no name");
    }
}

#[tokio::test]
async fn with_an_address_for_administrators_sections_are_only_there() {
    let world = World::with(CONFIG, |mut options| {
        options.admin_listen = Some("127.0.0.1:0".to_owned());
        options.pages.push(AppPage::of(Arc::new(Echo { name: "echo" })));
        options
    })
    .await;
    assert_eq!(world.get("/ui/app/echo").await.status, StatusCode::NOT_FOUND);
    let admin = format!("http://{}/ui/app/echo", world.admin.unwrap());
    assert_eq!(Reply::of(world.client.get(admin)).await.status, StatusCode::OK);
}
