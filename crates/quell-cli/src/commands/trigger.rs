//! `quell trigger`: sends a webhook as its provider would, signed with the endpoint's own secret, to try an endpoint out.

use clap::Args;
use quell::clock::{RealTime, Time};
use quell::config::{EndpointSettings, Flags};
use quell::endpoints::{self, ReadyEndpoint};
use quell::fetch::{Call, Http};
use quell::webhook::Proof;
use serde_json::Value;

use crate::args::{Form, Global};
use crate::context;
use crate::failure::{self, Failure};
use crate::outgoing;
use crate::output::{self, Columns, cell};
use crate::times;

const ANSWER_CHARS: usize = 500;

/// A webhook to try.
struct Fixture {
    name: &'static str,
    /// The scheme that it is made for; other endpoints take it as well.
    scheme: &'static str,
    about: &'static str,
    content_type: &'static str,
    headers: &'static [(&'static str, &'static str)],
    /// Where the body has its id, which is made new each time.
    id_at: Option<&'static str>,
    body: &'static str,
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

const FIXTURES: &[Fixture] = &[
    Fixture {
        name: "github/push",
        scheme: "github",
        about: "a push of one commit",
        content_type: JSON,
        headers: &[("x-github-event", "push")],
        id_at: None,
        body: include_str!("../../fixtures/github-push.json"),
    },
    Fixture {
        name: "github/ping",
        scheme: "github",
        about: "what GitHub sends first; it has no repository",
        content_type: JSON,
        headers: &[("x-github-event", "ping")],
        id_at: None,
        body: include_str!("../../fixtures/github-ping.json"),
    },
    Fixture {
        name: "stripe/payment",
        scheme: "stripe",
        about: "a payment that has succeeded",
        content_type: "application/json; charset=utf-8",
        headers: &[],
        id_at: Some("/id"),
        body: include_str!("../../fixtures/stripe-payment.json"),
    },
    Fixture {
        name: "slack/message",
        scheme: "slack",
        about: "a message in a channel",
        content_type: JSON,
        headers: &[],
        id_at: Some("/event_id"),
        body: include_str!("../../fixtures/slack-message.json"),
    },
    Fixture {
        name: "slack/command",
        scheme: "slack",
        about: "a slash command, as a form",
        content_type: FORM,
        headers: &[],
        id_at: None,
        body: include_str!("../../fixtures/slack-command.form"),
    },
    Fixture {
        name: "standard/order",
        scheme: "standard",
        about: "an order that was paid",
        content_type: JSON,
        headers: &[],
        id_at: None,
        body: include_str!("../../fixtures/standard-order.json"),
    },
];

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  quell trigger                                     what can be sent
  quell trigger github/push                         to the endpoint with that scheme, on this machine's server
  quell trigger github/push --count 5               a burst of five
  quell trigger payload.json --endpoint shop        a file of your own
  quell trigger stripe/payment --set /data/object/amount=99 --url https://queue.example.org/hooks/stripe")]
pub(crate) struct TriggerArgs {
    /// A fixture, or a file; without it, the list of fixtures
    fixture: Option<String>,
    /// The endpoint of quell.toml; default: the only one that fits
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// Where to send it; default: the endpoint on the server of `listen`
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Its id; default: a new one. Sent twice, it is a duplicate
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Puts a value into the body first: a JSON pointer, `=`, and JSON or a word; may be given several times
    #[arg(long = "set", value_name = "/PLACE=VALUE")]
    set: Vec<String>,
    /// How many, one after the other, each with an id of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    #[command(flatten)]
    form: Form,
}

pub(crate) async fn run(args: TriggerArgs, global: &Global) -> Result<u8, Failure> {
    let Some(name) = &args.fixture else { return list(args.form) };
    let own;
    let (fixture, body) = match FIXTURES.iter().find(|fixture| fixture.name == name) {
        Some(fixture) => (Some(fixture), fixture.body),
        None => {
            own = std::fs::read_to_string(name).map_err(|error| no_fixture(name, &error))?;
            (None, own.as_str())
        }
    };
    let loaded = context::load(global, Flags::default())?;
    let (ready, _) = endpoints::ready(&loaded.settings, &loaded.env)?;
    let endpoint = choose(&ready, args.endpoint.as_deref(), fixture)?;
    let url = match &args.url {
        Some(url) => url.clone(),
        None => format!("http://{}/hooks/{}", reachable(&loaded.settings.listen), endpoint.settings.name),
    };
    let http = outgoing::client(&url)?;
    let mut worst = 0;
    for _ in 0..args.count {
        let delivery = Made::new(endpoint, fixture, body, &args)?;
        worst = worst.max(send(&http, &url, delivery, args.form).await?);
    }
    Ok(worst)
}

fn list(form: Form) -> Result<u8, Failure> {
    if form.json {
        let rows = FIXTURES.iter().map(|fixture| {
            serde_json::json!({ "name": fixture.name, "scheme": fixture.scheme, "about": fixture.about })
        });
        output::json(&serde_json::json!({ "items": rows.collect::<Vec<_>>(), "next": null }))?;
        return Ok(0);
    }
    let mut table = Columns::new(&["FIXTURE", "SCHEME", "WHAT IT IS"]);
    for fixture in FIXTURES {
        table.row([fixture.name, fixture.scheme, fixture.about].map(cell));
    }
    table.write()?;
    Ok(0)
}

fn no_fixture(name: &str, error: &std::io::Error) -> Failure {
    let text = format!("{name:?} is neither a fixture nor a file that can be read: {error}");
    Failure::new(failure::NOT_FOUND, text).help("`quell trigger` lists the fixtures")
}

/// The endpoint that was named, or the only one that fits.
fn choose<'a>(
    ready: &'a [ReadyEndpoint],
    named: Option<&str>,
    fixture: Option<&Fixture>,
) -> Result<&'a ReadyEndpoint, Failure> {
    let names = |list: &[&ReadyEndpoint]| {
        let names: Vec<&str> = list.iter().map(|one| one.settings.name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let all: Vec<&ReadyEndpoint> = ready.iter().collect();
    if let Some(name) = named {
        return all.iter().find(|one| one.settings.name == name).copied().ok_or_else(|| {
            let text = format!("there is no endpoint {name:?}; there are: {}", names(&all));
            Failure::new(failure::NOT_FOUND, text).help("endpoints are [endpoints.NAME] in quell.toml")
        });
    }
    let fits =
        |settings: &EndpointSettings| fixture.is_none_or(|fixture| fixture.scheme == settings.scheme.name());
    let fitting: Vec<&ReadyEndpoint> = all.iter().filter(|one| fits(&one.settings)).copied().collect();
    match fitting.as_slice() {
        [one] => Ok(one),
        [] => {
            let text = format!("no endpoint has the scheme of this fixture; there are: {}", names(&all));
            Err(Failure::new(failure::USAGE, text)
                .help("name one with --endpoint, or add [endpoints.NAME] to quell.toml"))
        }
        many => {
            let text = format!("several endpoints fit: {}", names(many));
            Err(Failure::new(failure::USAGE, text).help("name one with --endpoint"))
        }
    }
}

/// An address that everybody can be reached at is no address to go to.
fn reachable(listen: &str) -> String {
    listen.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
}

/// A delivery that is ready to go.
struct Made {
    id: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Made {
    fn new(
        endpoint: &ReadyEndpoint,
        fixture: Option<&Fixture>,
        body: &str,
        args: &TriggerArgs,
    ) -> Result<Self, Failure> {
        let id = args.id.clone().unwrap_or_else(fresh_id);
        let mut body = body.to_owned();
        let id_at = fixture.and_then(|fixture| fixture.id_at);
        if id_at.is_some() || !args.set.is_empty() {
            let mut value: Value = serde_json::from_str(&body).map_err(|error| {
                Failure::new(failure::USAGE, format!("--set needs a body that is JSON: {error}"))
            })?;
            if let Some(place) = id_at {
                put(&mut value, place, Value::String(id.clone()))?;
            }
            for wish in &args.set {
                let (place, text) = wish.split_once('=').ok_or_else(|| {
                    Failure::new(failure::USAGE, format!("--set {wish:?} is not /PLACE=VALUE"))
                })?;
                let given = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
                put(&mut value, place, given)?;
            }
            body = value.to_string();
        }
        let content_type = fixture.map_or(JSON, |fixture| fixture.content_type);
        let mut headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let own = fixture.map_or(&[][..], |fixture| fixture.headers);
        headers.extend(own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let scheme = &endpoint.settings.scheme;
        match endpoint.proofs.secrets.first() {
            Some(secret) => {
                let now = RealTime::new().wall().as_millis().div_euclid(1_000);
                headers.extend(scheme.sign(secret, &id, now, body.as_bytes()));
            }
            None if scheme.proof() == Proof::None => {}
            None => return Err(Failure::new(failure::USAGE, "the endpoint has no secret to sign with")),
        }
        Ok(Made { id, headers, body })
    }
}

/// Replaces what is there, or adds a field to an object.
fn put(value: &mut Value, place: &str, given: Value) -> Result<(), Failure> {
    let cannot = || Failure::new(failure::USAGE, format!("there is no place {place:?} in the body"));
    if let Some(there) = value.pointer_mut(place) {
        *there = given;
        return Ok(());
    }
    let (parent, name) = place.rsplit_once('/').ok_or_else(cannot)?;
    let object = value.pointer_mut(parent).and_then(Value::as_object_mut).ok_or_else(cannot)?;
    object.insert(name.replace("~1", "/").replace("~0", "~"), given);
    Ok(())
}

fn fresh_id() -> String {
    let secret = quell::clock::secret();
    let text: String = secret.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("trigger_{text}")
}

async fn send(http: &Http, url: &str, made: Made, form: Form) -> Result<u8, Failure> {
    let Made { id, headers, body } = made;
    let bad = |what: String| Failure::new(failure::FAILED, what);
    let mut call = Call::new(quell::fetch::Method::POST, url).body(body);
    for (name, value) in headers {
        let name = name.parse().map_err(|_| bad(format!("{name:?} is not the name of a header")))?;
        let value =
            value.parse().map_err(|_| bad("a secret has characters that no header takes".to_owned()))?;
        call = call.header(name, value);
    }
    let reply = http.call(call).await.map_err(|error| {
        bad(format!("{url} did not take it: {error}"))
            .help("is `quell serve` running? --url names another place")
    })?;
    let text = String::from_utf8_lossy(&reply.body);
    let status = reply.status.as_u16();
    if form.json {
        let answer = serde_json::from_str::<Value>(&text).unwrap_or_else(|_| Value::String(text.to_string()));
        output::json(&serde_json::json!({ "id": id, "url": url, "status": status, "answer": answer }))?;
    } else {
        output::line(format!("{status} {id} {}", times::one_line(&text, ANSWER_CHARS)).trim_end())?;
    }
    if reply.status.is_success() {
        return Ok(0);
    }
    output::say("it was refused: `quell deliveries --refused` says why");
    Ok(failure::REFUSED)
}
