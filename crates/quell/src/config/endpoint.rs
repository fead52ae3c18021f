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
use super::secret::resolve_secrets;
use super::value::{OneOrMany, Written};
use super::{EndpointSettings, Origin, QueueSettings, Unkeyed};

/// What Standard Webhooks, Stripe and Slack say.
const TOLERANCE_DEFAULT: Duration = Duration::from_secs(300);
const TOLERANCE_MAX: Duration = Duration::from_secs(3600);

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
    let allow_unsigned = switch(r, &path("allow_unsigned"), file.allow_unsigned.clone());
    if let (true, Some(written)) = (allow_unsigned && proof != Proof::None, file.allow_unsigned) {
        let found = r.placed(written);
        return Err(r.error(&found, "allow_unsigned is only for scheme = \"none\""));
    }
    let bounds = Duration::from_secs(1)..=TOLERANCE_MAX;
    let tolerance = r.duration(&path("tolerance"), None, &[], file.tolerance, TOLERANCE_DEFAULT, bounds)?;
    let public_url = file.public_url.map(|written| r.placed(written));
    if let Some(url) = &public_url {
        if !(url.value.starts_with("https://") || url.value.starts_with("http://")) {
            return Err(r.error(url, format!("{:?} is not a URL with https or http", url.value)));
        }
        r.note(path("public_url"), &url.value, &url.origin);
    }

    let queue = required(r, "endpoint", name, file.queue, "queue", "queue = \"builds\"")?;
    let queue_name = known_queue(r, &queue, queues)?.name.clone();
    r.note(path("queue"), queue_name.as_str(), &queue.origin);
    let tenant = text_or(r, file.tenant, "");
    let parsed_tenant = Tenant::new(&tenant.value).map_err(|e| r.error(&tenant, e.to_string()))?;
    let shown = if parsed_tenant.is_none() { "none".to_owned() } else { parsed_tenant.to_string() };
    r.note(path("tenant"), shown, &tenant.origin);

    let key = required(r, "endpoint", name, file.key, "key", "key = \"/repository/full_name\"")?;
    let hidden = scheme.confidential();
    let keys = rules_of(r, &key, &hidden)?;
    r.note(path("key"), key.value.to_string(), &key.origin);
    let id = rule(r, &path("id"), file.id, scheme.usual_id(), "none", &hidden)?;
    let payload = rule(r, &path("payload"), file.payload, None, "all of it", &hidden)?;
    let headers = headers(r, &path("headers"), file.headers, scheme.usual_headers(), &hidden)?;
    let words = [("refuse", Unkeyed::Refuse), ("ignore", Unkeyed::Ignore)];
    let unkeyed = word(r, &path("unkeyed"), file.unkeyed, &words)?;

    Ok(EndpointSettings {
        name: name.value.clone(),
        scheme,
        secrets,
        tolerance,
        public_url: public_url.map(|found| found.value),
        rules: Rules { key: keys, id, payload, headers },
        queue: queue_name,
        tenant: parsed_tenant,
        unkeyed,
        allow_unsigned,
    })
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
