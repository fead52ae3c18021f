//! One journey: a server, a browser, what is done with them, and what must be true at the end of all of them.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::Client;
use tokio::sync::Semaphore;

use crate::driver::{self, Browser, key};
use crate::served::Served;

/// Browsers at a time: each is several processes, and more of them than this make one another slow.
static BROWSERS: Semaphore = Semaphore::const_new(2);

/// Set to keep the pictures that the documents show; otherwise they are taken and thrown away.
const WRITE_IMAGES: &str = "QUELL_WRITE_IMAGES";

/// One queue whose keys wait long enough for somebody to read why.
pub(crate) const ORDERS: &str = r#"
[queues.orders]
window = { quiet = "1h", max_wait = "2h" }
handler = "pull"
"#;

pub(crate) struct Journey {
    pub(crate) served: Served,
    pub(crate) browser: Browser,
    images: PathBuf,
}

/// Starts a server with this `quell.toml` and a browser, walks, and then looks at what the browser has to say.
pub(crate) async fn journey(config: &str, walk: impl AsyncFnOnce(&Journey) + 'static) {
    let _one_of_few = BROWSERS.acquire().await.unwrap();
    // Whoever sets it first, it is the same one: nothing here speaks TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::builder().no_proxy().timeout(driver::PATIENCE).build().unwrap();
    let (_driver, profile, browser) = Browser::start(&client).await;
    let images = images(profile.path());
    let journey =
        Rc::new(Journey { served: Served::start(&client, config), browser: browser.clone(), images });
    // In a task of its own, so that the browser is closed however it ends.
    let tasks = tokio::task::LocalSet::new();
    let walked = tasks.spawn_local({
        let journey = journey.clone();
        async move {
            walk(&journey).await;
            journey.ends_well().await;
        }
    });
    let walked = tasks.run_until(walked).await;
    browser.quit().await;
    walked.unwrap();
}

/// Where pictures go.
fn images(temporary: &Path) -> PathBuf {
    if std::env::var_os(WRITE_IMAGES).is_some_and(|set| set == "1") {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images")
    } else {
        temporary.join("images")
    }
}

impl Journey {
    /// A page of the server.
    pub(crate) async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.served.url)).await;
    }

    /// Logs in by the form and arrives at the page that was wanted.
    pub(crate) async fn login(&self, path: &str) {
        self.login_with(&self.served.token, path).await;
    }

    pub(crate) async fn login_with(&self, token: &str, path: &str) {
        self.open(path).await;
        self.browser.is_at("/ui/login").await;
        self.browser.type_into("#token", token).await;
        self.browser.click("#login").await;
        self.browser.is_at(path.split('?').next().unwrap()).await;
    }

    /// Presses the tabulator until this has the focus.
    pub(crate) async fn tab_to(&self, selector: &str) {
        /// More than any page has before its content ends.
        const PRESSES_MAX: usize = 100;
        let here = format!("return document.activeElement.matches({selector:?})");
        for _ in 0..PRESSES_MAX {
            if self.browser.run(&here).await == true {
                return;
            }
            self.browser.press(key::TAB).await;
        }
        panic!("the keyboard does not reach {selector}");
    }

    /// A picture of the top of the page, for the documents.
    pub(crate) async fn picture(&self, name: &str) {
        self.picture_from("body", name).await;
    }

    /// The same from this element on.
    pub(crate) async fn picture_from(&self, selector: &str, name: &str) {
        self.browser.run(&format!("document.querySelector({selector:?}).scrollIntoView()")).await;
        let picture = BASE64_STANDARD.decode(self.browser.picture().await).unwrap();
        std::fs::create_dir_all(&self.images).unwrap();
        std::fs::write(self.images.join(format!("{name}.webp")), picture).unwrap();
    }

    /// Nothing was complained of, and nobody else was asked for anything.
    async fn ends_well(&self) {
        assert_eq!(self.browser.complaints().await, Vec::<String>::new());
        let asked = self.browser.asked().await;
        assert!(!asked.is_empty(), "the browser's own log of requests is empty");
        let own = format!("{}/", self.served.url);
        let elsewhere: Vec<_> = asked.iter().filter(|url| !url.starts_with(&own)).collect();
        assert!(elsewhere.is_empty(), "asked of other servers: {elsewhere:?}");
    }
}
