//! One endpoint, from `[endpoints.NAME]` to what the server takes deliveries with.
//!
//! A scheme that needs a secret and has none is refused here, as is a setting of another scheme. Secrets are not read
//! here: a configuration can be checked where they are not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use quell_core::event::{QueueName, Tenant};
use quell_webhook::{Bearer, Encoding, Hmac, Proof, Rule, Rules, Scheme, Schemes};

use super::error::{ConfigError, nearest};
use super::handler::{refuse_fields, span_of};
use super::policy::word;
use super::queue::{known_queue, switch};
use super::raw::EndpointConfig;
use super::resolver::{Found, Resolver, required, text_or};
use super::secret::{resolve_secrets, resolve_secrets_of};
use super::value::{OneOrMany, Written};
use super::{EndpointSettings, Origin, QueueSettings, SecretSource, Unkeyed};

/// What Standard Webhooks, Stripe and Slack say.
const TOLERANCE_DEFAULT: Duration = Duration::from_secs(300);
const TOLERANCE_MAX: Duration = Duration::from_secs(3600);
/// Where the events of schemes go that find their own keys.
const CHAT: &str = "chat";
/// A flow is a part of every key.
const FLOW_BYTES_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 256;
/// How the paths of the server begin: an endpoint cannot have one of them.
pub const SERVER_PATHS: [&str; 7] =
    ["/v1", "/ui", "/hooks", "/healthz", "/readyz", "/metrics", "/openapi.json"];

pub(super) fn resolve_endpoint(
    r: &mut Resolver<'_>,
    name: &Found<String>,
    mut file: EndpointConfig,
    queues: &BTreeMap<QueueName, Arc<QueueSettings>>,
    schemes: &Schemes,
) -> Result<EndpointSettings, ConfigError> {
    // The same letters as a queue's: it stands in a path and in names of metrics.
    if QueueName::new(&name.value).is_err() {
        let problem =
            format!("endpoint name {:?} is not 1 to 64 characters of a-z, 0-9, '.', '_' and '-'", name.value);
        return Err(r.error(name, problem));
    }
    let path = |setting: &str| format!("endpoints.{}.{setting}", name.value);

    let scheme = scheme(r, name, &path, &mut file, schemes)?;
    let proof = scheme.proof();
    let secrets = resolve_secrets(r, &path, file.secret_file.take(), file.secret_env.take())?;
    match proof {
        Proof::None if !secrets.is_empty() => {
            return Err(r.error(name, "scheme \"none\" proves nothing, so it has no secret"));
        }
        Proof::Signed | Proof::Bearer if secrets.is_empty() => {
            let help = "write secret_file = \"NAME\" or secret_env = \"NAME\"; the secret itself stays out of this file";
            return Err(r.error(name, format!("scheme {:?} needs a secret", scheme.name())).help(help));
        }
        _ => {}
    }
    let verify = verify_tokens(r, &path, &mut file, &*scheme)?;
    let own_path = own_path(r, &path, file.path.take())?;
    let allow_unsigned = switch(r, &path("allow_unsigned"), file.allow_unsigned.clone());
    if let (true, Some(written)) = (allow_unsigned && proof != Proof::None, file.allow_unsigned.take()) {
        let found = r.placed(written);
        return Err(r.error(&found, "allow_unsigned is only for scheme = \"none\""));
    }
    let bounds = Duration::from_secs(1)..=TOLERANCE_MAX;
    let tolerance =
        r.duration(&path("tolerance"), None, &[], file.tolerance.take(), TOLERANCE_DEFAULT, bounds)?;
    let public_url = file.public_url.take().map(|written| r.placed(written));
    if let Some(url) = &public_url {
        if !(url.value.starts_with("https://") || url.value.starts_with("http://")) {
            return Err(r.error(url, format!("{:?} is not a URL with https or http", url.value)));
        }
        r.note(path("public_url"), &url.value, &url.origin);
    } else if scheme.needs_public_url() {
        let problem = format!(
            "scheme {:?} signs the address that it sends to, and there is no public_url",
            scheme.name()
        );
        let help =
            "write it exactly as the provider has it: public_url = \"https://bot.example.com/hooks/NAME\"";
        return Err(r.error(name, problem).help(help));
    }

    let (queue, queue_origin) = match file.queue.take() {
        // That it does not exist is told where the endpoint stands.
        None if scheme.finds_keys() => (Found { value: CHAT.to_owned(), ..name.clone() }, Origin::Default),
        written => {
            let queue = required(r, "endpoint", name, written, "queue", "queue = \"builds\"")?;
            let origin = queue.origin.clone();
            (queue, origin)
        }
    };
    let queue_name = known_queue(r, &queue, queues)?.name.clone();
    r.note(path("queue"), queue_name.as_str(), &queue_origin);
    let tenant = text_or(r, file.tenant.take(), "");
    let parsed_tenant = Tenant::new(&tenant.value).map_err(|e| r.error(&tenant, e.to_string()))?;
    let shown = if parsed_tenant.is_none() { "none".to_owned() } else { parsed_tenant.to_string() };
    r.note(path("tenant"), shown, &tenant.origin);

    let (rules, unkeyed) = if scheme.finds_keys() {
        (found_by_itself(r, &path, file)?, Unkeyed::Ignore)
    } else {
        by_rules(r, &path, name, file, &*scheme)?
    };

    Ok(EndpointSettings {
        name: name.value.clone(),
        scheme,
        secrets,
        verify,
        path: own_path,
        tolerance,
        public_url: public_url.map(|found| found.value),
        rules,
        queue: queue_name,
        tenant: parsed_tenant,
        unkeyed,
        allow_unsigned,
    })
}

/// Where key, id and payload stand in the deliveries of an endpoint.
fn by_rules(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    name: &Found<String>,
    file: EndpointConfig,
    scheme: &dyn Scheme,
) -> Result<(Rules, Unkeyed), ConfigError> {
    let own = [("flow", span_of(&file.flow))];
    refuse_fields(r, &own, "is only for schemes that know their customers: wati, twilio and meta")?;
    let key = required(r, "endpoint", name, file.key, "key", "key = \"/repository/full_name\"")?;
    let hidden = scheme.confidential();
    let keys = rules_of(r, &key, &hidden)?;
    r.note(path("key"), key.value.to_string(), &key.origin);
    let id = rule(r, &path("id"), file.id, scheme.usual_id(), "none", &hidden)?;
    let payload = rule(r, &path("payload"), file.payload, None, "all of it", &hidden)?;
    let headers = headers(r, &path("headers"), file.headers, scheme.usual_headers(), &hidden)?;
    let words = [("refuse", Unkeyed::Refuse), ("ignore", Unkeyed::Ignore)];
    let unkeyed = word(r, &path("unkeyed"), file.unkeyed, &words)?;
    Ok((Rules { key: keys, id, payload, headers, flow: None }, unkeyed))
}

/// A scheme that knows its customers: a rule would be ignored in silence, so there is none.
fn found_by_itself(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    file: EndpointConfig,
) -> Result<Rules, ConfigError> {
    let own = [
        ("key", span_of(&file.key)),
        ("id", span_of(&file.id)),
        ("payload", span_of(&file.payload)),
        ("headers", span_of(&file.headers)),
        ("unkeyed", span_of(&file.unkeyed)),
    ];
    refuse_fields(r, &own, "is not for this scheme, which finds it by itself")?;
    let flow = file.flow.map(|written| r.placed(written));
    if let Some(flow) = &flow {
        let plain = !flow.value.trim().is_empty() && !flow.value.contains(char::is_control);
        if !plain || flow.value.len() > FLOW_BYTES_MAX {
            let problem = format!("flow is a name of 1 to {FLOW_BYTES_MAX} bytes without control characters");
            return Err(r.error(flow, problem));
        }
        r.note(path("flow"), &flow.value, &flow.origin);
    } else {
        r.note(path("flow"), "none", &Origin::Default);
    }
    Ok(Rules { flow: flow.map(|found| found.value), ..Rules::default() })
}

fn verify_tokens(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    file: &mut EndpointConfig,
    scheme: &dyn Scheme,
) -> Result<Vec<SecretSource>, ConfigError> {
    if !scheme.has_verify_token() {
        let own = [
            ("verify_token_file", span_of(&file.verify_token_file)),
            ("verify_token_env", span_of(&file.verify_token_env)),
        ];
        refuse_fields(r, &own, "is only for scheme = \"meta\"")?;
    }
    let (files, names) = (file.verify_token_file.take(), file.verify_token_env.take());
    resolve_secrets_of(r, path, "verify_token", files, names)
}

/// The second address of an endpoint. Whether another endpoint has it is known when all of them are read ([`same_path`]).
fn own_path(
    r: &mut Resolver<'_>,
    path: &impl Fn(&str) -> String,
    file: Option<Written<String>>,
) -> Result<Option<String>, ConfigError> {
    let Some(written) = file else { return Ok(None) };
    let found = r.placed(written);
    let address = found.value.as_str();
    // Nothing that could be written in two ways, so that what is compared is what was sent.
    let plain = |segment: &str| {
        let letters = segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
        letters && !["", ".", ".."].contains(&segment)
    };
    let segments = address.strip_prefix('/').filter(|rest| rest.split('/').all(plain));
    if segments.is_none() || address.len() > PATH_BYTES_MAX {
        let problem = format!(
            "{address:?} is not a path of at most {PATH_BYTES_MAX} bytes: `/` and letters, digits, '-', '.', '_' or '~'"
        );
        return Err(r.error(&found, problem).help("write for example path = \"/webhook\""));
    }
    let below = |taken: &&str| {
        address.strip_prefix(*taken).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(taken) = SERVER_PATHS.into_iter().find(below) {
        let problem = format!("{address:?} is a path of the server itself, which has everything at {taken}");
        return Err(r.error(&found, problem).help("take another one, for example path = \"/webhook\""));
    }
    r.note(path("path"), address, &found.origin);
    Ok(Some(found.value))
}

/// Refuses an endpoint whose path another one has.
pub(super) fn same_path(
    r: &Resolver<'_>,
    name: &Found<String>,
    one: &EndpointSettings,
    others: &[Arc<EndpointSettings>],
) -> Result<(), ConfigError> {
    match others.iter().find(|other| one.path.is_some() && other.path == one.path) {
        Some(other) => {
            let path = one.path.as_deref().unwrap_or_default();
            let problem =
                format!("the endpoints {:?} and {:?} both have the path {path:?}", other.name, one.name);
            Err(r.error(name, problem).help("only one of them can be found there; take another path"))
        }
        None => Ok(()),
    }
}

/// The scheme with what is its own: only `hmac` and `bearer` have settings.
fn scheme(
    r: &mut Resolver<'_>,
    name: &Found<String>,
    path: &impl Fn(&str) -> String,
    file: &mut EndpointConfig,
    schemes: &Schemes,
) -> Result<Arc<dyn Scheme>, ConfigError> {
    let word_given = required(r, "endpoint", name, file.scheme.take(), "scheme", "scheme = \"standard\"")?;
    let Some(scheme) = schemes.get(&word_given.value) else {
        let known = schemes.names();
        let help = match nearest(&word_given.value, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("schemes are {}", known.join(", ")),
        };
        return Err(r.error(&word_given, format!("there is no scheme {:?}", word_given.value)).help(help));
    };
    r.note(path("scheme"), scheme.name(), &word_given.origin);
    if scheme.name() != "hmac" {
        let own = [
            ("prefix", span_of(&file.prefix)),
            ("encoding", span_of(&file.encoding)),
            ("timestamp_header", span_of(&file.timestamp_header)),
        ];
        refuse_fields(r, &own, "is only for scheme = \"hmac\"")?;
    }
    if !["hmac", "bearer"].contains(&scheme.name()) {
        let own = [("header", span_of(&file.header))];
        refuse_fields(r, &own, "is only for scheme = \"hmac\" or \"bearer\"")?;
    }
    Ok(match scheme.name() {
        "hmac" => {
            let usual = Hmac::default();
            let header = header_of(r, &path("header"), file.header.take(), Some(&usual.header))?;
            let prefix = text_or(r, file.prefix.take(), &usual.prefix);
            r.note(path("prefix"), format!("{:?}", prefix.value), &prefix.origin);
            let words = [("hex", Encoding::Hex), ("base64", Encoding::Base64)];
            let encoding = word(r, &path("encoding"), file.encoding.take(), &words)?;
            let timestamp_header =
                header_of(r, &path("timestamp_header"), file.timestamp_header.take(), None)?;
            let header = header.unwrap_or(usual.header);
            Arc::new(Hmac { header, prefix: prefix.value, encoding, timestamp_header })
        }
        "bearer" => {
            let usual = Bearer::default();
            let header = header_of(r, &path("header"), file.header.take(), Some(&usual.header))?;
            Arc::new(Bearer { header: header.unwrap_or(usual.header) })
        }
        _ => scheme,
    })
}

fn header_of(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<String>>,
    usual: Option<&str>,
) -> Result<Option<String>, ConfigError> {
    let Some(written) = file else {
        r.note(setting, usual.unwrap_or("none"), &Origin::Default);
        return Ok(usual.map(str::to_owned));
    };
    let found = r.placed(written);
    let checked: HeaderName = header_name(r, &found, &found.value)?;
    r.note(setting, checked.as_str(), &found.origin);
    Ok(Some(checked.as_str().to_owned()))
}

fn header_name<T>(r: &Resolver<'_>, place: &Found<T>, name: &str) -> Result<HeaderName, ConfigError> {
    name.parse().map_err(|_| r.error(place, format!("{name:?} is not the name of a header")))
}

fn headers(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<Vec<String>>>,
    usual: &[&str],
    hidden: &[String],
) -> Result<Vec<String>, ConfigError> {
    let found = match file {
        Some(written) => r.placed(written),
        None => {
            let usual = usual.iter().map(|name| (*name).to_owned()).collect();
            Found { value: usual, origin: Origin::Default, span: 0..0 }
        }
    };
    let checked: Vec<String> = (found.value.iter())
        .map(|name| header_name(r, &found, name).map(|name| name.as_str().to_owned()))
        .collect::<Result<_, _>>()?;
    checked.iter().try_for_each(|name| refuse_hidden(r, &found, name, hidden))?;
    r.note(setting, format!("{checked:?}"), &found.origin);
    Ok(checked)
}

/// What proves the sender would be seen by everybody who sees the event.
fn refuse_hidden<T>(
    r: &Resolver<'_>,
    place: &Found<T>,
    name: &str,
    hidden: &[String],
) -> Result<(), ConfigError> {
    if hidden.iter().any(|one| one == name) {
        return Err(r.error(place, format!("{name} is as good as a secret, so it is no part of an event")));
    }
    Ok(())
}

fn parse_rule<T>(
    r: &Resolver<'_>,
    place: &Found<T>,
    text: &str,
    hidden: &[String],
) -> Result<Rule, ConfigError> {
    let rule = Rule::parse(text).map_err(|e| r.error(place, e.to_string()))?;
    if let Rule::Header(name) = &rule {
        refuse_hidden(r, place, name, hidden)?;
    }
    Ok(rule)
}

fn rules_of(r: &Resolver<'_>, found: &Found<OneOrMany>, hidden: &[String]) -> Result<Vec<Rule>, ConfigError> {
    if found.value.0.is_empty() {
        return Err(r.error(found, "the list is empty, so no delivery would have a key"));
    }
    found.value.0.iter().map(|text| parse_rule(r, found, text, hidden)).collect()
}

fn rule(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<String>>,
    usual: Option<Rule>,
    none: &str,
    hidden: &[String],
) -> Result<Option<Rule>, ConfigError> {
    let Some(written) = file else {
        let shown = usual.as_ref().map_or_else(|| none.to_owned(), Rule::to_string);
        r.note(setting, shown, &Origin::Default);
        return Ok(usual);
    };
    let found = r.placed(written);
    let parsed = match found.value.as_str() {
        "none" => None,
        text => Some(parse_rule(r, &found, text, hidden)?),
    };
    r.note(setting, &found.value, &found.origin);
    Ok(parsed)
}
