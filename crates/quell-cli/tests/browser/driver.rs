//! A real browser, steered over the WebDriver protocol (W3C): JSON over HTTP to chromedriver, nothing more.
//!
//! Elements are found and used in one go and again until it works: pages change while they are looked at, and an element that
//! was found may be another one a moment later.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Everything here takes a second or two; on a noisy machine it may take longer, and never this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// The name that the protocol gives to a reference to an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys that have no letter, as the protocol names them.
pub(crate) mod key {
    pub(crate) const TAB: &str = "\u{e004}";
    pub(crate) const ENTER: &str = "\u{e007}";
}

/// Asks until there is an answer.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            quell::clock::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("waited too long for: {what}"))
}

/// A process that ends with its value, and with it those that it has started.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it and waits for the line that the reader understands, on stdout or stderr.
    pub(crate) fn start<T: Send + 'static>(
        mut command: Command,
        read: impl Fn(&str) -> Option<T> + Clone + Send + 'static,
    ) -> (Process, T) {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        follow(child.stdout.take().unwrap(), tell.clone(), read.clone());
        follow(child.stderr.take().unwrap(), tell, read);
        let found = told.recv_timeout(PATIENCE);
        let process = Process(child);
        (process, found.unwrap_or_else(|_| panic!("{command:?} did not say what it should")))
    }
}

/// Reads to the end, so that the process is never held up by a full pipe.
fn follow<T: Send + 'static>(
    from: impl std::io::Read + Send + 'static,
    tell: std::sync::mpsc::Sender<T>,
    read: impl Fn(&str) -> Option<T> + Send + 'static,
) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if let Some(found) = read(&line) {
                let _ = tell.send(found);
            }
        }
    });
}

impl Drop for Process {
    fn drop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// One window of a browser without a screen.
#[derive(Clone)]
pub(crate) struct Browser {
    client: Client,
    session: String,
}

impl Browser {
    /// The driver has to live as long as the browser does.
    pub(crate) async fn start(client: &Client) -> (Process, TempDir, Browser) {
        let (chromium, chromedriver) = quell_test_servers::browser().unwrap_or_else(|e| panic!("{e}"));
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(chromedriver);
        command.arg("--port=0");
        let (driver, port) = Process::start(command, |line| {
            line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        let mut args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            "--window-size=1280,900",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let driver_url = format!("http://127.0.0.1:{port}");
        let made = call(client, Method::POST, &format!("{driver_url}/session"), &wanted).await.unwrap();
        let session = format!("{driver_url}/session/{}", made["sessionId"].as_str().unwrap());
        (driver, profile, Browser { client: client.clone(), session })
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        call(&self.client, Method::POST, &format!("{}{path}", self.session), &body).await
    }

    pub(crate) async fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url })).await.unwrap();
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": [] })).await.unwrap()
    }

    /// A command of the browser's own protocol, for what WebDriver has no word for.
    async fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", json!({ "cmd": command, "params": params })).await.unwrap()
    }

    /// From now on the window is as wide as that of a small telephone.
    pub(crate) async fn narrow(&self) {
        let size = json!({ "width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// From now on pages are told that the reader prefers `dark` or `light`.
    pub(crate) async fn prefers(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// From now on pages run no scripts; those of the tests still do.
    pub(crate) async fn without_scripts(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// What is in the window, as WebP in base64.
    pub(crate) async fn picture(&self) -> String {
        let taken = self.devtools("Page.captureScreenshot", json!({ "format": "webp", "quality": 80 })).await;
        taken["data"].as_str().unwrap().to_owned()
    }

    /// Nothing is wider than the window.
    pub(crate) async fn fits(&self) {
        let root = "document.documentElement";
        let wide = self.run(&format!("return [{root}.scrollWidth, {root}.clientWidth]")).await;
        assert!(wide[0].as_u64() <= wide[1].as_u64(), "the page and the window are so wide: {wide}");
    }

    /// Every text stands out from what is behind it, as far as WCAG AA asks.
    pub(crate) async fn readable(&self) {
        let weak = self.run(include_str!("contrast.js")).await;
        assert_eq!(weak, json!([]), "texts with too little contrast");
    }

    async fn find(&self, selector: &str) -> Option<String> {
        let query = json!({ "using": "css selector", "value": selector });
        Some(self.post("/element", query).await.ok()?[ELEMENT].as_str()?.to_owned())
    }

    pub(crate) async fn click(&self, selector: &str) {
        until(&format!("a click on {selector}"), async || {
            let element = self.find(selector).await?;
            self.post(&format!("/element/{element}/click"), json!({})).await.ok()
        })
        .await;
    }

    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        until(&format!("typing into {selector}"), async || {
            let element = self.find(selector).await?;
            self.post(&format!("/element/{element}/value"), json!({ "text": text })).await.ok()
        })
        .await;
    }

    /// Waits until an element shows this text; all of its text.
    pub(crate) async fn reads(&self, selector: &str, text: &str) -> String {
        until(&format!("{text:?} in {selector}"), async || {
            let element = self.find(selector).await?;
            let url = format!("{}/element/{element}/text", self.session);
            let shown = call(&self.client, Method::GET, &url, &Value::Null).await.ok()?;
            shown.as_str().filter(|shown| shown.contains(text)).map(str::to_owned)
        })
        .await
    }

    /// Presses keys wherever the focus is.
    pub(crate) async fn press(&self, keys: &str) {
        let strokes = keys.chars().flat_map(|key| {
            let stroke = |kind: &str| json!({ "type": kind, "value": key.to_string() });
            [stroke("keyDown"), stroke("keyUp")]
        });
        let source = json!({ "type": "key", "id": "keyboard", "actions": strokes.collect::<Vec<_>>() });
        self.post("/actions", json!({ "actions": [source] })).await.unwrap();
    }

    /// Waits until a script answers with something true.
    pub(crate) async fn becomes(&self, script: &str) -> Value {
        until(script, async || {
            // A page that is just being left has no answer.
            let answer = self.post("/execute/sync", json!({ "script": script, "args": [] })).await.ok()?;
            let told = !matches!(answer, Value::Null | Value::Bool(false));
            told.then_some(answer)
        })
        .await
    }

    /// Waits until the address begins with this.
    pub(crate) async fn is_at(&self, path: &str) {
        until(&format!("the page {path}"), async || {
            let here =
                self.post("/execute/sync", json!({ "script": "return location.pathname", "args": [] }));
            here.await.ok()?.as_str()?.starts_with(path).then_some(())
        })
        .await;
    }

    /// Every address that pages have asked for since it was last asked, whoever would have answered.
    pub(crate) async fn asked(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "performance" })).await.unwrap();
        let entries = log.as_array().unwrap().iter();
        let messages = entries.filter_map(|entry| serde_json::from_str(entry["message"].as_str()?).ok());
        let sent = messages.filter_map(|entry: Value| {
            let message = &entry["message"];
            let asks = message["method"] == "Network.requestWillBeSent";
            let url = message["params"]["request"]["url"].as_str().filter(|url| url.starts_with("http"));
            asks.then(|| url.map(str::to_owned)).flatten()
        });
        sent.collect()
    }

    /// What the browser complained of since it was last asked: errors of scripts, refused and missing files.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "browser" })).await.unwrap();
        let entries = log.as_array().unwrap().iter();
        let bad = entries.filter(|entry| entry["level"] == "SEVERE" || entry["source"] == "security");
        bad.map(ToString::to_string).collect()
    }

    /// Takes note of complaints that were provoked: each one since it was last asked has this in it, and there is one.
    pub(crate) async fn forgive(&self, text: &str) {
        let complaints = self.complaints().await;
        assert!(!complaints.is_empty(), "the browser did not complain of {text}");
        assert!(complaints.iter().all(|complaint| complaint.contains(text)), "{complaints:?}");
    }

    pub(crate) async fn quit(&self) {
        let _ = call(&self.client, Method::DELETE, &self.session, &Value::Null).await;
    }
}

async fn call(client: &Client, method: Method, url: &str, body: &Value) -> Result<Value, String> {
    let mut request = client.request(method, url);
    if !body.is_null() {
        request = request.json(body);
    }
    let response = request.send().await.map_err(|e| e.to_string())?;
    let fine = response.status().is_success();
    let answer: Value = response.json().await.map_err(|e| e.to_string())?;
    if fine { Ok(answer["value"].clone()) } else { Err(answer.to_string()) }
}
