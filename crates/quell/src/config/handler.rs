//! The `handler` of a queue, from the file to [`HandlerSettings`].
//!
//! Kinds of later versions are refused by name, and so is what could only surprise at the first batch: a program that
//! is missing, an exit code that means two things, a value where a variable name belongs.

use std::time::Duration;

use quell_core::limits;

use super::error::{ConfigError, nearest};
use super::raw::{ExecConfig, HandlerConfig};
use super::resolver::{Found, Resolver};
use super::value::{WordOr, Written};
use super::{ExecSettings, HandlerSettings, Origin};

pub(super) fn resolve_handler(
    r: &mut Resolver<'_>,
    setting: &str,
    file: Option<Written<HandlerConfig>>,
) -> Result<HandlerSettings, ConfigError> {
    let Some(written) = file else {
        r.note(setting, "log", &Origin::Default);
        return Ok(HandlerSettings::Log);
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
                        None => "write \"log\", \"pull\" or { exec = [\"./program\"] }".to_owned(),
                    };
                    return Err(r.error(&found, format!("there is no handler {text:?}")).help(help));
                }
            };
            r.note(setting, text, &found.origin);
            Ok(handler)
        }
        WordOr::Table(table) => exec(r, setting, &found, table.clone()).map(HandlerSettings::Exec),
    }
}

fn exec(
    r: &mut Resolver<'_>,
    setting: &str,
    place: &Found<HandlerConfig>,
    file: ExecConfig,
) -> Result<ExecSettings, ConfigError> {
    if let Some(http) = file.http {
        let found = r.placed(http);
        let problem = "an http handler needs the HTTP server, which is not available in this version yet";
        return Err(r.error(&found, problem).help("use { exec = [\"./program\"] } or \"log\""));
    }
    let example = "write { exec = [\"./program\", \"argument\"] }";
    let Some(argv) = file.exec else {
        return Err(r.error(place, "the handler does not say what to start").help(example));
    };
    let argv = r.placed(argv);
    if argv.value.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(r.error(&argv, "the program is missing").help(example));
    }
    if argv.value.iter().any(|argument| argument.contains('\0')) {
        return Err(r.error(&argv, "an argument contains a NUL character, which no program can receive"));
    }
    r.note(format!("{setting}.exec"), format!("{:?}", argv.value), &argv.origin);

    let (tick, most) = (Duration::from_millis(1), limits::LEASE_MAX);
    let usual = ExecSettings::TIMEOUT_DEFAULT;
    let timeout = r.duration(&format!("{setting}.timeout"), None, &[], file.timeout, usual, tick..=most)?;
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
