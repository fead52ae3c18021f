//! The `handler` of a queue, from the file to [`HandlerSettings`].
//!
//! What could only surprise at the first batch is refused here: a program that is missing, an exit code that means two
//! things, a value where a variable name belongs, a URL that could never be connected to, a field of the other kind of
//! handler, which would do nothing.

use std::ops::Range;
use std::time::Duration;

use quell_core::limits;
use quell_fetch::{Guard, Refused};

use super::error::{ConfigError, nearest};
use super::raw::{HandlerConfig, HandlerParts};
use super::resolver::{Found, Resolver};
use super::secret::resolve_secrets;
use super::value::{DurationText, WordOr, Written};
use super::{ExecSettings, HandlerSettings, Origin, PushSettings};

pub(super) fn resolve_handler(
    r: &mut Resolver<'_>,
    setting: &str,
    guard: &Guard,
    file: Option<Written<HandlerConfig>>,
    usual: HandlerSettings,
) -> Result<HandlerSettings, ConfigError> {
    let Some(written) = file else {
        let word = if usual == HandlerSettings::App { "the application" } else { "log" };
        r.note(setting, word, &Origin::Default);
        return Ok(usual);
    };
    let found = r.placed(written);
    match &found.value {
        WordOr::Word(text) => {
            let words = ["log", "pull"];
            let handler = match text.as_str() {
                "log" => HandlerSettings::Log,
                "pull" => HandlerSettings::Pull,
                _ => {
                    let help = match nearest(text, words) {
                        Some(near) => format!("did you mean {near:?}?"),
                        None => format!("write \"log\", \"pull\", {EXAMPLES}"),
                    };
                    return Err(r.error(&found, format!("there is no handler {text:?}")).help(help));
                }
            };
            r.note(setting, text, &found.origin);
            Ok(handler)
        }
        WordOr::Table(parts) => match (&parts.exec, &parts.http) {
            (Some(_), Some(http)) => {
                let problem = "a handler is a program or a service, not both";
                let place = r.placed(http.clone());
                Err(r.error(&place, problem).help("remove exec or http; two queues can have one each"))
            }
            (None, None) => {
                let problem = "the handler does not say what to start or whom to send to";
                Err(r.error(&found, problem).help(format!("write {EXAMPLES}")))
            }
            (Some(argv), None) => exec(r, setting, argv.clone(), parts.clone()).map(HandlerSettings::Exec),
            (None, Some(url)) => {
                push(r, setting, guard, url.clone(), parts.clone()).map(HandlerSettings::Http)
            }
        },
    }
}

const EXAMPLES: &str = "{ exec = [\"./program\"] } or { http = \"https://app.example.com/quell\" }";

/// A field that the other kind of handler has would be ignored in silence.
pub(super) fn refuse_fields(
    r: &Resolver<'_>,
    fields: &[(&str, Option<Range<usize>>)],
    why: &str,
) -> Result<(), ConfigError> {
    match fields.iter().find_map(|(name, span)| Some((name, span.clone()?))) {
        Some((name, span)) => {
            let place = r.placed(Written { value: (), span });
            Err(r.error(&place, format!("{name} {why}")).help("remove it"))
        }
        None => Ok(()),
    }
}

/// Where a value stands, if it is there.
pub(super) fn span_of<T>(written: &Option<Written<T>>) -> Option<Range<usize>> {
    written.as_ref().map(|written| written.span.clone())
}

fn push(
    r: &mut Resolver<'_>,
    setting: &str,
    guard: &Guard,
    url: Written<String>,
    file: HandlerParts,
) -> Result<PushSettings, ConfigError> {
    let programs = [
        ("fail_exit", span_of(&file.fail_exit)),
        ("retry_exit", span_of(&file.retry_exit)),
        ("env", span_of(&file.env)),
    ];
    refuse_fields(r, &programs, "belongs to a program (exec), and this handler is a service (http)")?;
    let url = r.placed(url);
    if let Err(refused) = guard.meaning(&url.value).admit(&url.value) {
        let error = r.error(&url, refused.to_string());
        return Err(match how_to_mend(&refused) {
            Some(help) => error.help(help),
            None => error,
        });
    }
    let settings = PushSettings::new(url.value);
    r.note(format!("{setting}.http"), settings.target(), &url.origin);
    let timeout = timeout(r, setting, PushSettings::TIMEOUT_DEFAULT, file.timeout)?;
    let path = |name: &str| format!("{setting}.{name}");
    let secrets = resolve_secrets(r, &path, file.secret_file, file.secret_env)?;
    Ok(PushSettings { timeout, secrets, ..settings })
}

fn how_to_mend(refused: &Refused) -> Option<&'static str> {
    match refused {
        Refused::Unreadable(_) | Refused::Scheme(_) | Refused::NotHttps => {
            Some("write for example \"https://app.example.com/quell\"")
        }
        Refused::Credentials => Some(
            "the service knows us by the signature: give secret_file or secret_env, and no password here",
        ),
        Refused::Port(_) | Refused::Address { .. } | Refused::Name { .. } | Refused::Resolved { .. } => {
            Some("if it is meant, allow it: [outbound] allow = [\"host:port\"]")
        }
        Refused::TooLong(_) => None,
    }
}

fn timeout(
    r: &mut Resolver<'_>,
    setting: &str,
    usual: Duration,
    file: Option<Written<DurationText>>,
) -> Result<Duration, ConfigError> {
    let bounds = Duration::from_millis(1)..=limits::LEASE_MAX;
    r.duration(&format!("{setting}.timeout"), None, &[], file, usual, bounds)
}

fn exec(
    r: &mut Resolver<'_>,
    setting: &str,
    argv: Written<Vec<String>>,
    file: HandlerParts,
) -> Result<ExecSettings, ConfigError> {
    let services = [("secret_file", span_of(&file.secret_file)), ("secret_env", span_of(&file.secret_env))];
    refuse_fields(r, &services, "belongs to a service (http), and this handler is a program (exec)")?;
    let example = "write { exec = [\"./program\", \"argument\"] }";
    let argv = r.placed(argv);
    if argv.value.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(r.error(&argv, "the program is missing").help(example));
    }
    if argv.value.iter().any(|argument| argument.contains('\0')) {
        return Err(r.error(&argv, "an argument contains a NUL character, which no program can receive"));
    }
    r.note(format!("{setting}.exec"), format!("{:?}", argv.value), &argv.origin);

    let timeout = timeout(r, setting, ExecSettings::TIMEOUT_DEFAULT, file.timeout)?;
    let retry_exit = exit_codes(r, &format!("{setting}.retry_exit"), file.retry_exit)?;
    let fail_exit = exit_codes(r, &format!("{setting}.fail_exit"), file.fail_exit)?;
    let fail_exit = fail_exit.map(|found| found.value);
    if let Some(retried) = &retry_exit {
        let both = retried.value.iter().find(|code| fail_exit.as_ref().is_some_and(|f| f.contains(code)));
        if let Some(code) = both {
            return Err(r.error(retried, format!("exit code {code} cannot mean both retry and failed")));
        }
    }
    // A code that the file wants retried is not failed by our default.
    let by_default = vec![ExecSettings::FAIL_EXIT_DEFAULT];
    let fail_exit = fail_exit.unwrap_or(if retry_exit.is_some() { Vec::new() } else { by_default });

    let env = file.env.map(|written| r.placed(written));
    if let Some(env) = &env {
        let bad = env.value.iter().find(|name| name.is_empty() || name.contains(['=', '\0', ' ']));
        if let Some(bad) = bad {
            let help = "list only names; their values come from the environment of quell";
            return Err(r.error(env, format!("{bad:?} is not a variable name")).help(help));
        }
        r.note(format!("{setting}.env"), format!("{:?}", env.value), &env.origin);
    }
    let env = env.map(|found| found.value).unwrap_or_default();
    let retry_exit = retry_exit.map(|found| found.value);
    Ok(ExecSettings { argv: argv.value, timeout, fail_exit, retry_exit, env })
}

fn exit_codes(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<Vec<i64>>>,
) -> Result<Option<Found<Vec<i32>>>, ConfigError> {
    let Some(written) = file else { return Ok(None) };
    let found = r.placed(written);
    let codes: Option<Vec<i32>> =
        found.value.iter().map(|&code| i32::try_from(code).ok().filter(|c| (1..=255).contains(c))).collect();
    let Some(codes) = codes else {
        return Err(r.error(&found, "exit codes are 1 to 255; 0 always means succeeded"));
    };
    r.note(setting, format!("{codes:?}"), &found.origin);
    Ok(Some(Found { value: codes, origin: found.origin, span: found.span }))
}
