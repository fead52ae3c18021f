//! Pages that an application shows and the server frames: it gives a title and what its templates wrote, and everything around
//! that is as on the server's own pages.
//!
//! A section only ever looks. What it answers is a page or a reason, never a status, a header or a redirection, so it cannot
//! weaken what protects the rest; and it is asked for what stands below its own address and for nothing else.

use std::sync::Arc;

use askama::Template;
use async_trait::async_trait;
use axum::Extension;
use axum::response::Response;
use http::{Method, StatusCode, Uri};
use percent_encoding::percent_decode_str;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::error::StoreError;

use super::Failed;
use super::shell::{AppPage, Content, Shell, rendered};
use crate::app::App;
use crate::error::{Answer, Problem};

/// Pages of an application under one entry of the navigation.
///
/// Everything below `/ui/app/{name}` is asked of it, by GET and only for those who are logged in with a token that has the scope
/// `read` and is not limited to tenants or queues: what an application shows belongs to none.
///
/// ```
/// use std::sync::Arc;
/// use quell_server::ServerOptions;
/// use quell_server::pages::{AppPage, Page, PageError, PageRequest, Section};
///
/// #[derive(askama::Template)]
/// #[template(source = "<p>Hello, {{ name }}.</p>", ext = "html")]
/// struct Hello<'a> { name: &'a str }
///
/// struct Greetings;
///
/// #[async_trait::async_trait]
/// impl Section for Greetings {
///     fn name(&self) -> &'static str { "greetings" }
///     fn title(&self) -> &'static str { "Greetings" }
///     async fn page(&self, request: PageRequest) -> Result<Page, PageError> {
///         match request.path()[..] {
///             [] => Ok(Page::new("Greetings").live(&Hello { name: "everybody" })),
///             [name] => Ok(Page::new(name).live(&Hello { name })),
///             _ => Err(PageError::not_found("there is no such greeting")),
///         }
///     }
/// }
///
/// let mut options = ServerOptions::at("127.0.0.1:0");
/// options.pages.push(AppPage::of(Arc::new(Greetings)));
/// ```
#[async_trait]
pub trait Section: Send + Sync {
    /// The last part of its address: small letters, digits and `-`.
    fn name(&self) -> &'static str;

    /// In the navigation.
    fn title(&self) -> &'static str;

    async fn page(&self, request: PageRequest) -> Result<Page, PageError>;
}

/// What somebody wants to see.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// The section's own address, to make links with.
    pub base: String,
    /// The parts of the path below it, decoded; none for the first page.
    pub segments: Vec<String>,
    /// What stands behind the question mark, decoded.
    pub query: Vec<(String, String)>,
    /// By the store's clock.
    pub now: Timestamp,
}

impl PageRequest {
    /// The parts of the path, to be compared.
    pub fn path(&self) -> Vec<&str> {
        self.segments.iter().map(String::as_str).collect()
    }

    /// What a field of a form holds, if it holds anything.
    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(field, _)| field == name);
        found.map(|(_, text)| text.trim()).filter(|text| !text.is_empty())
    }
}

/// A page: a part that stays and, below it, a part that is fetched again whenever something has changed.
///
/// Both are templates, because those escape what users wrote.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    fixed: String,
    live: String,
}

impl Page {
    /// The title is text; the frame escapes it.
    pub fn new(title: impl Into<String>) -> Self {
        Page { title: title.into(), fixed: String::new(), live: String::new() }
    }

    /// Headings and forms: what somebody may be typing into.
    #[must_use]
    pub fn fixed(mut self, template: &impl Template) -> Self {
        self.fixed = rendered(template);
        self
    }

    /// What changes. Times in it count, and what a reader has unfolded stays so.
    #[must_use]
    pub fn live(mut self, template: &impl Template) -> Self {
        self.live = rendered(template);
        self
    }
}

/// Why there is no page; the text is for people.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    #[error("{0}")]
    NotFound(String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Anything else. The text goes to the log; visitors learn that there is one.
    #[error("{0}")]
    Failed(String),
}

impl PageError {
    pub fn not_found(detail: impl Into<String>) -> Self {
        PageError::NotFound(detail.into())
    }

    pub fn invalid(detail: impl Into<String>) -> Self {
        PageError::Invalid(detail.into())
    }

    fn problem(self, section: &str) -> Problem {
        match self {
            PageError::NotFound(detail) => Problem::not_found(detail),
            PageError::Invalid(detail) => Problem::bad_request(detail),
            PageError::Store(error) => error.into(),
            PageError::Failed(error) => {
                tracing::error!(section, %error, "a page of an application failed");
                let detail = "the page could not be made; the server's log says more";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
        }
    }
}

impl AppPage {
    /// The pages of a section.
    pub fn of(section: Arc<dyn Section>) -> AppPage {
        let (name, title) = (section.name(), section.title());
        let answer = move |Extension(app): Extension<Arc<App>>,
                           Extension(shell): Extension<Shell>,
                           method: Method,
                           uri: Uri| {
            let section = section.clone();
            async move { show(&app, &shell, section.as_ref(), &method, &uri).await.map_err(Failed::from) }
        };
        AppPage { name, title, router: axum::Router::new().fallback(answer) }
    }
}

async fn show(
    app: &App,
    shell: &Shell,
    section: &dyn Section,
    method: &Method,
    uri: &Uri,
) -> Answer<Response> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let detail = "this page is only there to be looked at";
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail);
        return Err(problem.allow("GET, HEAD"));
    }
    let now = app.now().await?;
    let wish = PageRequest {
        base: super::shell::place(section.name()),
        segments: segments(uri.path())?,
        query: pairs(uri.query().unwrap_or_default())?,
        now,
    };
    let Page { title, fixed, mut live } =
        section.page(wish).await.map_err(|error| error.problem(section.name()))?;
    if !live.is_empty() {
        // The script counts by it.
        live.insert_str(0, &format!("<span id=\"clock\" data-now=\"{}\" hidden></span>\n", now.as_millis()));
    }
    Ok(shell.show(&Content { title, fixed, live }))
}

/// `/a/b%2Fc` is `a` and `b/c`.
fn segments(path: &str) -> Answer<Vec<String>> {
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let decoded = |part| Ok(percent_decode_str(part).decode_utf8()?.into_owned());
    let parts: Result<_, std::str::Utf8Error> = path.split('/').map(decoded).collect();
    parts.map_err(|_| Problem::bad_request("the path is not UTF-8").at("path"))
}

fn pairs(query: &str) -> Answer<Vec<(String, String)>> {
    if percent_decode_str(query).decode_utf8().is_err() {
        return Err(Problem::bad_request("the query is not UTF-8").at("query"));
    }
    Ok(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_before_it_is_decoded() {
        let parts = |path| segments(path).unwrap().join("|");
        assert_eq!(segments("/").unwrap(), Vec::<String>::new());
        assert_eq!(parts("/sessions/a%2Fb"), "sessions|a/b");
        assert_eq!(parts("//a/"), "|a|");
        assert_eq!(parts("/../%2e%2e/x%20y"), "..|..|x y");
        assert!(segments("/%ff").is_err() && pairs("a=%ff").is_err());
    }

    #[test]
    fn an_empty_field_is_none() {
        let query = pairs("a=+&b=c+d&b=e&f").unwrap();
        let request =
            PageRequest { base: String::new(), segments: vec![], query, now: Timestamp::from_millis(0) };
        assert_eq!((request.field("a"), request.field("b"), request.field("f")), (None, Some("c d"), None));
    }
}
