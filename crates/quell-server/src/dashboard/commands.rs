//! The same by other means: what a button does as a command of `quell` and as one of curl, to be copied.
//!
//! Keys hold anything, so every word is quoted for the shell: what is copied does what it says and nothing else.

use quell::quell_core::batch::RunId;
use quell::quell_core::event::LaneKey;

use super::view;

/// One action in both ways.
pub(super) struct Command {
    pub(super) name: &'static str,
    pub(super) quell: String,
    pub(super) curl: String,
}

/// What can be done to a lane.
pub(super) fn of_lane(lane: &LaneKey, host: &str) -> Vec<Command> {
    let LaneKey { tenant, queue, key } = lane;
    let flag =
        if tenant.is_none() { String::new() } else { format!("--tenant {} ", quoted(tenant.as_str())) };
    // A key that begins with a dash would be taken for a flag.
    let dashes = if key.as_str().starts_with('-') { "-- " } else { "" };
    let path = format!("/v1/lanes/{queue}/{}", view::segment(key.as_str()));
    let query = view::tenant_query(lane);
    let words = format!("{flag}{dashes}{queue} {}", quoted(key.as_str()));
    let looks = Command {
        name: "look",
        quell: format!("quell lane {words}"),
        curl: curl("GET", host, &format!("{path}{query}"), None),
    };
    let acts = ["flush", "pause", "resume", "cancel"].map(|name| Command {
        name,
        quell: format!("quell {name} {words}"),
        curl: curl("POST", host, &format!("{path}/{name}{query}"), None),
    });
    [looks].into_iter().chain(acts).collect()
}

/// What can be done to a run.
pub(super) fn of_run(run: RunId, host: &str) -> Vec<Command> {
    let looks = Command {
        name: "look",
        quell: format!("quell run {run}"),
        curl: curl("GET", host, &format!("/v1/runs/{run}"), None),
    };
    let redrives = Command {
        name: "redrive",
        quell: format!("quell redrive {run}"),
        curl: curl("POST", host, &format!("/v1/runs/{run}/redrive"), Some("{}")),
    };
    vec![looks, redrives]
}

fn curl(method: &str, host: &str, path: &str, body: Option<&str>) -> String {
    let method = if method == "GET" { String::new() } else { format!("-X {method} ") };
    let body = body.map(|text| format!(" --json {}", quoted(text))).unwrap_or_default();
    let url = quoted(&format!("http://{host}{path}"));
    format!("curl {method}-H \"Authorization: Bearer $QUELL_TOKEN\"{body} {url}")
}

/// One word of a shell. Control characters are written out, so that a terminal does not obey them.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.chars().any(view::is_invisible) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut text = String::from("$'");
    for c in word.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            c if view::is_invisible(c) => text.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use quell::quell_core::event::{Key, QueueName, Tenant};

    use super::*;

    #[test]
    fn a_shell_reads_one_word() {
        assert_eq!(quoted("order-7/a"), "order-7/a");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $(rm) `x`"), r"'it'\''s $(rm) `x`'");
        assert_eq!(quoted("a\u{1b}[31m'\\"), r"$'a\U0000001b[31m\'\\'");
        assert_eq!(quoted("\u{202e}x"), r"$'\U0000202ex'");
    }

    #[test]
    fn an_action_is_told_in_both_ways() {
        let lane = LaneKey::new(QueueName::new("chat").unwrap(), Key::new("a b/c").unwrap());
        let all = of_lane(&lane.of(Tenant::new("acme").unwrap()), "127.0.0.1:7717");
        let pause = all.iter().find(|command| command.name == "pause").unwrap();
        assert_eq!(pause.quell, "quell pause --tenant acme chat 'a b/c'");
        assert_eq!(
            pause.curl,
            "curl -X POST -H \"Authorization: Bearer $QUELL_TOKEN\" 'http://127.0.0.1:7717/v1/lanes/chat/a%20b%2Fc/pause?tenant=acme'"
        );
    }
}
