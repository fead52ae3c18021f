//! The frame around every page: navigation, who is logged in, and the part that is fetched again.
//!
//! It is also the door for applications: an [`AppPage`] adds a router of its own under `/ui/app/`, behind the same login and the
//! same headers, and its handlers take the [`Shell`] out of the request's extensions to look like the rest. One that only shows
//! something is made of a section (`section.rs`) and needs no router.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request};
use quell::tokens::Scope;

use super::assets;
use crate::auth::Principal;
use crate::error::Problem;

/// A page, or several, that an application adds to the dashboard.
///
/// Everything of its router is reached under `/ui/app/{name}`: looking needs the scope `read`, every other method `operate`,
/// and forms of other sites are refused. A token that is limited to tenants or queues opens none of it, because nobody could
/// tell what of it belongs to those. Scripts and styles have to come from this server; nothing inline runs.
///
/// Whoever only shows something has it easier with a [`Section`](super::Section) and [`AppPage::of`].
///
/// ```
/// use axum::{Extension, Router, routing::get};
/// use quell_server::{AppPage, ServerOptions, Shell};
///
/// async fn orders(Extension(shell): Extension<Shell>) -> axum::response::Response {
///     shell.page("Orders", "<p>None yet.</p>")
/// }
///
/// let mut options = ServerOptions::at("127.0.0.1:0");
/// let router = Router::new().route("/", get(orders));
/// options.pages.push(AppPage { name: "orders", title: "Orders", router });
/// ```
#[derive(Debug, Clone)]
pub struct AppPage {
    /// The last part of its address: small letters, digits and `-`.
    pub name: &'static str,
    /// In the navigation.
    pub title: &'static str,
    pub router: axum::Router,
}

impl AppPage {
    /// Its address. A name with anything else in it could reach into the addresses of others.
    pub(super) fn place(&self) -> String {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fine = !self.name.is_empty() && self.name.bytes().all(plain);
        assert!(fine, "the name of a page has small letters, digits and `-`, and {:?} is not one", self.name);
        place(self.name)
    }
}

pub(super) fn place(name: &str) -> String {
    format!("/ui/app/{name}")
}

/// An entry of the navigation.
#[derive(Debug)]
pub(super) struct Entry {
    title: &'static str,
    place: String,
    /// Behind "More": looked for now and then. The bar has room for what is looked at all day.
    rare: bool,
    /// Of an application.
    added: bool,
}

pub(super) type Navigation = Arc<[Entry]>;

pub(super) fn navigation(pages: &[AppPage]) -> Navigation {
    let daily =
        [("Overview", "/"), ("Lanes", "/ui/lanes"), ("Runs", "/ui/runs"), ("Dead letters", "/ui/dead")];
    let rare = [
        ("Deliveries", "/ui/deliveries"),
        ("Sources", "/ui/sources"),
        ("Schedules", "/ui/schedules"),
        ("Audit", "/ui/audit"),
        ("Playground", "/ui/playground"),
    ];
    let own = |(title, place): (&'static str, &str), rare| Entry {
        title,
        place: place.to_owned(),
        rare,
        added: false,
    };
    let added = |page: &AppPage| Entry { title: page.title, place: page.place(), rare: false, added: true };
    let daily = daily.into_iter().map(|of| own(of, false));
    daily.chain(pages.iter().map(added)).chain(rare.into_iter().map(|of| own(of, true))).collect()
}

/// The frame for one request.
#[derive(Debug, Clone)]
pub struct Shell {
    navigation: Navigation,
    who: Option<String>,
    operates: bool,
    /// Not limited to tenants or queues.
    sees_all: bool,
    path: String,
    /// The address of this page, with its filters.
    place: String,
    fragment: bool,
}

/// What a page shows: a part that stays and a part that is fetched again when something has changed.
pub(super) struct Content {
    pub(super) title: String,
    pub(super) fixed: String,
    pub(super) live: String,
}

impl Shell {
    pub(super) fn new(principal: &Principal, navigation: Navigation, request: &Request<Body>) -> Self {
        let uri = request.uri();
        Shell {
            navigation,
            who: principal.name().map(str::to_owned),
            operates: principal.allows(Scope::Operate),
            sees_all: principal.unlimited().is_ok(),
            path: uri.path().to_owned(),
            place: uri.path_and_query().map_or("/", |place| place.as_str()).to_owned(),
            fragment: is_fragment(request.headers()),
        }
    }

    /// Whether to show what changes things.
    pub fn operates(&self) -> bool {
        self.operates
    }

    /// A page of an application. The HTML is taken as it is: what comes from users has to be escaped in it.
    pub fn page(&self, title: &str, html: impl Into<String>) -> Response {
        self.show(&Content { title: title.to_owned(), fixed: html.into(), live: String::new() })
    }

    /// The whole page, or what changes of it.
    pub(super) fn show(&self, content: &Content) -> Response {
        html(if self.fragment { content.live.clone() } else { Frame { shell: self, content }.text() })
    }

    /// The navigation of this visitor.
    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.navigation.iter().filter(|entry| self.sees_all || !entry.added)
    }

    /// The entry of this page, if it stands behind "More".
    fn rare_here(&self) -> Option<&Entry> {
        self.entries().find(|entry| entry.rare && self.is_here(entry))
    }

    fn is_here(&self, entry: &Entry) -> bool {
        match entry.place.as_str() {
            "/" => self.path == "/",
            place => self.path == place || self.path.starts_with(&format!("{place}/")),
        }
    }
}

/// Whether a script asks for the part that changes.
pub(super) fn is_fragment(headers: &HeaderMap) -> bool {
    headers.contains_key("hx-request")
}

#[derive(Template)]
#[template(path = "frame.html")]
struct Frame<'a> {
    shell: &'a Shell,
    content: &'a Content,
}

impl Frame<'_> {
    fn text(&self) -> String {
        rendered(self)
    }

    fn asset(&self, name: &str) -> String {
        assets::place(name)
    }
}

#[derive(Template)]
#[template(path = "login.html")]
pub(super) struct LoginPage<'a> {
    pub(super) next: &'a str,
    pub(super) problem: Option<&'a str>,
}

impl LoginPage<'_> {
    pub(super) fn text(&self) -> String {
        rendered(self)
    }

    fn asset(&self, name: &str) -> String {
        assets::place(name)
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    title: &'static str,
    detail: &'a str,
}

impl ProblemPage<'_> {
    fn asset(&self, name: &str) -> String {
        assets::place(name)
    }
}

pub(super) fn problem_page(problem: &Problem) -> String {
    rendered(&ProblemPage { title: problem.title(), detail: problem.detail() })
}

/// Templates write into memory and call nothing that fails.
pub(super) fn rendered(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a page could not be written");
        String::new()
    })
}

pub(super) fn html(text: String) -> Response {
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// A page in place of the problem's document, with its status and headers.
pub(super) fn with_status_of(problem: Problem, page: String) -> Response {
    let mut response = problem.into_response();
    *response.body_mut() = Body::from(page);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}
