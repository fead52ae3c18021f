//! Every setting about endpoints: what it becomes, and what is refused.

use quell_webhook::{Proof, Rule};

use super::tests::{refused, secs, settings};
use super::*;

const QUEUE: &str = "[queues.jobs]\n";

fn endpoint(text: &str) -> EndpointSettings {
    let found = settings(&format!("{QUEUE}[endpoints.shop]\nqueue = \"jobs\"\n{text}\n")).endpoints.remove(0);
    Arc::unwrap_or_clone(found)
}

fn rule(text: &str) -> Rule {
    Rule::parse(text).unwrap()
}

#[test]
fn an_endpoint_needs_a_scheme_a_secret_a_queue_and_a_key() {
    let least = endpoint("scheme = \"standard\"\nsecret_file = \"shop.secret\"\nkey = \"/id\"");
    assert_eq!((least.name.as_str(), least.queue.as_str()), ("shop", "jobs"));
    assert_eq!((least.scheme.name(), least.scheme.proof()), ("standard", Proof::Signed));
    assert_eq!(least.secrets, [SecretSource::File("shop.secret".into())]);
    assert_eq!((least.tolerance, least.unkeyed, least.allow_unsigned), (secs(300), Unkeyed::Refuse, false));
    assert!(least.tenant.is_none() && least.public_url.is_none());
    assert_eq!(least.rules.key, [rule("/id")]);
    assert_eq!(least.rules.id, Some(rule("header:webhook-id")));
    assert_eq!((least.rules.payload, least.rules.headers), (None, vec![]));
}

#[test]
fn every_setting_reaches_its_endpoint() {
    let whole = endpoint(
        "scheme = \"hmac\"\nheader = \"X-Shop-Mac\"\nprefix = \"sha256=\"\nencoding = \"base64\"\n\
         timestamp_header = \"X-Shop-Time\"\nsecret_file = [\"new\", \"old\"]\nsecret_env = \"SHOP\"\n\
         key = [\"/a~1b\", \"header:X-Shop\", \"text:everyone\"]\nid = \"header:X-Id\"\npayload = \"/data\"\n\
         tenant = \"acme\"\nheaders = [\"X-Kind\"]\ntolerance = \"1h\"\nunkeyed = \"ignore\"\n\
         public_url = \"https://shop.example/hooks/shop\"\npath = \"/shop.php\"",
    );
    let shown = format!("{:?}", whole.scheme);
    for part in ["x-shop-mac", "sha256=", "Base64", "x-shop-time"] {
        assert!(shown.contains(part), "{shown}");
    }
    let (file, env) = (|name: &str| SecretSource::File(name.into()), SecretSource::Env("SHOP".into()));
    assert_eq!(whole.secrets, [file("new"), file("old"), env]);
    assert_eq!(whole.rules.key, [rule("/a~1b"), rule("header:x-shop"), rule("text:everyone")]);
    assert_eq!((whole.rules.id, whole.rules.payload), (Some(rule("header:x-id")), Some(rule("/data"))));
    assert_eq!(
        (whole.tenant.to_string(), whole.rules.headers),
        ("acme".to_owned(), vec!["x-kind".to_owned()])
    );
    assert_eq!((whole.tolerance, whole.unkeyed), (secs(3600), Unkeyed::Ignore));
    assert_eq!(whole.public_url.as_deref(), Some("https://shop.example/hooks/shop"));
    assert_eq!(whole.path.as_deref(), Some("/shop.php"));
}

#[test]
fn each_scheme_brings_what_is_usual_for_it() {
    for (scheme, id, headers) in [
        ("standard", Some("header:webhook-id"), &[][..]),
        ("github", Some("header:x-github-delivery"), &["x-github-event"]),
        ("stripe", Some("/id"), &[]),
        ("slack", Some("/event_id"), &[]),
        ("hmac", None, &[]),
        ("bearer", None, &[]),
    ] {
        let usual = endpoint(&format!("scheme = \"{scheme}\"\nsecret_env = \"S\"\nkey = \"/k\""));
        assert_eq!(usual.rules.id, id.map(rule), "{scheme}");
        assert_eq!(usual.rules.headers, headers, "{scheme}");
    }
    let none = endpoint("scheme = \"github\"\nsecret_env = \"S\"\nkey = \"/k\"\nid = \"none\"\nheaders = []");
    assert_eq!((none.rules.id, none.rules.headers), (None, vec![]));
    let open = endpoint("scheme = \"none\"\nkey = \"\"\nallow_unsigned = true");
    assert!(open.secrets.is_empty() && open.allow_unsigned);
    assert_eq!((open.scheme.proof(), open.rules.key), (Proof::None, vec![rule("")]));
    let bearer = endpoint("scheme = \"bearer\"\nheader = \"X-Key\"\nsecret_env = \"S\"\nkey = \"/k\"");
    assert_eq!(bearer.scheme.confidential(), ["authorization", "x-key"]);
}

#[test]
fn what_is_in_force_is_shown_with_its_place_and_no_secret_is() {
    let text = format!(
        "{QUEUE}[endpoints.shop]\nqueue = \"jobs\"\nscheme = \"github\"\nsecret_file = \"shop.secret\"\nkey = \"/k\"\n"
    );
    let lines = settings(&text).explain();
    for (setting, value, origin) in [
        ("endpoints.shop.scheme", "github", "file line 4"),
        ("endpoints.shop.secret_file", "\"shop.secret\"", "file line 5"),
        ("endpoints.shop.queue", "jobs", "file line 3"),
        ("endpoints.shop.key", "\"/k\"", "file line 6"),
        ("endpoints.shop.id", "header:x-github-delivery", "default"),
        ("endpoints.shop.tenant", "none", "default"),
        ("endpoints.shop.tolerance", "5m", "default"),
        ("endpoints.shop.unkeyed", "refuse", "default"),
    ] {
        let line = lines.iter().find(|line| line.setting == setting).unwrap_or_else(|| panic!("{setting}"));
        assert_eq!((line.value.as_str(), line.origin.to_string().as_str()), (value, origin), "{setting}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_its_place() {
    let good = "scheme = \"standard\"\nsecret_env = \"S\"\nkey = \"/k\"\n";
    let with =
        |scheme: &str, more: &str| format!("scheme = \"{scheme}\"\nsecret_env = \"S\"\nkey = \"/k\"\n{more}");
    let bearer = |more: &str| with("bearer", more);
    let cases: Vec<(String, &str)> = vec![
        ("secret_env = \"S\"\nkey = \"/k\"".into(), "2:12: the endpoint \"shop\" has no scheme"),
        ("scheme = \"github\"\nkey = \"/k\"".into(), "2:12: scheme \"github\" needs a secret"),
        ("scheme = \"bearer\"\nkey = \"/k\"".into(), "2:12: scheme \"bearer\" needs a secret"),
        ("scheme = \"github\"\nsecret_env = \"S\"".into(), "2:12: the endpoint \"shop\" has no key"),
        (with("none", ""), "2:12: scheme \"none\" proves nothing, so it has no secret"),
        (with("githab", ""), "4:10: there is no scheme \"githab\""),
        (with("githab", ""), "did you mean \"github\"?"),
        (with("morse", ""), "schemes are bearer, github, hmac, none, slack, standard, stripe"),
        (format!("{good}secret = \"open sesame\""), "7:1: unknown setting `secret`"),
        (format!("{good}tolerance = \"0s\""), "7:13: tolerance = 0s is not between 1s and 1h"),
        (format!("{good}tolerance = \"61m\""), "7:13: tolerance = 1h1m is not between 1s and 1h"),
        (format!("{good}tolerance = 300"), "7:13:"),
        (
            format!("{good}public_url = \"shop.example\""),
            "7:14: \"shop.example\" is not a URL with https or http",
        ),
        (format!("{good}tenant = \"{}\"", "t".repeat(129)), "7:10: tenant"),
        (format!("{good}id = \"id\""), "7:6: \"id\" names no place"),
        (format!("{good}id = \"header:\""), "7:6: \"header:\" names no place"),
        (format!("{good}payload = \"data\""), "7:11: \"data\" names no place"),
        (format!("{good}headers = [\"a b\"]"), "7:11: \"a b\" is not the name of a header"),
        (format!("{good}headers = \"x-kind\""), "7:11:"),
        (format!("{good}unkeyed = \"drop\""), "7:11: unkeyed = \"drop\" is not known"),
        (format!("{good}allow_unsigned = true"), "7:18: allow_unsigned is only for scheme = \"none\""),
        (format!("{good}flow = \"x\""), "7:8: flow is only for schemes that know their customers"),
        (format!("{good}verify_token_env = \"V\""), "7:20: verify_token_env is only for scheme = \"meta\""),
        (format!("{good}path = \"/v1/events\""), "7:8: \"/v1/events\" is a path of the server itself"),
        (format!("{good}path = \"hook\""), "7:8: \"hook\" is not a path"),
        (format!("{good}header = \"x\""), "7:10: header is only for scheme = \"hmac\" or \"bearer\""),
        (format!("{good}prefix = \"x\""), "7:10: prefix is only for scheme = \"hmac\""),
        (bearer("encoding = \"hex\""), "7:12: encoding is only for scheme = \"hmac\""),
        (bearer("timestamp_header = \"x\""), "7:20: timestamp_header is only for scheme = \"hmac\""),
        (bearer("header = \"x y\""), "7:10: \"x y\" is not the name of a header"),
        (bearer("headers = [\"x-kind\", \"Authorization\"]"), "7:11: authorization is as good as a secret"),
        (bearer("header = \"X-Key\"\nheaders = [\"x-key\"]"), "8:11: x-key is as good as a secret"),
        (bearer("header = \"X-Key\"\nid = \"header:x-key\""), "8:6: x-key is as good as a secret"),
        (with("hmac", "encoding = \"base32\""), "7:12: encoding = \"base32\" is not known"),
        (with("hmac", "timestamp_header = \"\""), "7:20: \"\" is not the name of a header"),
        ("scheme = \"github\"\nsecret_env = \"S\"\nkey = []".into(), "6:7: the list is empty"),
        ("scheme = \"github\"\nsecret_env = \"S\"\nkey = 7".into(), "6:7:"),
        (
            "scheme = \"github\"\nsecret_env = \"S\"\nkey = [\"/a\", \"b\"]".into(),
            "6:7: \"b\" names no place",
        ),
        ("scheme = \"github\"\nsecret_env = \"S\"\nkey = \"/a~2\"".into(), "6:7: \"/a~2\" names no place"),
        (
            "scheme = \"github\"\nsecret_env = \"S\"\nkey = \"header:authorization\"".into(),
            "6:7: authorization is as good",
        ),
        (
            "scheme = \"github\"\nsecret_file = \" \"\nkey = \"/k\"".into(),
            "5:15: a name of a file is missing",
        ),
        ("scheme = \"github\"\nsecret_file = []\nkey = \"/k\"".into(), "5:15: a name of a file is missing"),
        (
            "scheme = \"github\"\nsecret_env = []\nkey = \"/k\"".into(),
            "5:14: a name of a variable is missing",
        ),
        (
            "scheme = \"github\"\nsecret_env = \"a b\"\nkey = \"/k\"".into(),
            "5:14: \"a b\" is not a variable name",
        ),
        (
            "scheme = \"github\"\nsecret_env = [\"A\", \"\"]\nkey = \"/k\"".into(),
            "5:14: \"\" is not a variable name",
        ),
    ];
    assert_eq!(cases.len(), 45);
    for (text, message) in cases {
        let problem = refused(&format!("{QUEUE}[endpoints.shop]\nqueue = \"jobs\"\n{text}\n"));
        assert!(problem.contains(message), "{text}\n{problem}");
    }
}

#[test]
fn names_and_queues_are_checked_too() {
    let good = "scheme = \"none\"\nkey = \"/k\"\n";
    for (text, message) in [
        (
            format!("[endpoints.Shop]\nqueue = \"jobs\"\n{good}"),
            "2:12: endpoint name \"Shop\" is not 1 to 64",
        ),
        (format!("[endpoints.\"a/b\"]\nqueue = \"jobs\"\n{good}"), "2:12: endpoint name \"a/b\" is not"),
        (format!("[endpoints.\"\"]\nqueue = \"jobs\"\n{good}"), "2:12: endpoint name \"\" is not"),
        (format!("[endpoints.{}]\nqueue = \"jobs\"\n{good}", "a".repeat(65)), "is not 1 to 64 characters"),
        (format!("[endpoints.shop]\n{good}"), "2:12: the endpoint \"shop\" has no queue"),
        (format!("[endpoints.shop]\nqueue = \"job\"\n{good}"), "3:9: there is no queue \"job\""),
        (format!("[endpoints.shop]\nqueue = \"job\"\n{good}"), "did you mean \"jobs\"?"),
        (format!("[endpoints.shop]\nqueue = \"nowhere\"\n{good}"), "add a section [queues.nowhere]"),
    ] {
        let problem = refused(&format!("{QUEUE}{text}"));
        assert!(problem.contains(message), "{text}\n{problem}");
    }
}

#[test]
fn a_secret_that_a_scheme_cannot_use_is_named_and_not_shown() {
    let text = |scheme: &str| {
        format!(
            "{QUEUE}[endpoints.shop]\nscheme = \"{scheme}\"\nsecret_env = \"S\"\nqueue = \"jobs\"\nkey = \"/k\"\n"
        )
    };
    for (scheme, secret, problem) in [
        ("standard", "whsec_c2hvcnQ=", "base64 of 5 bytes; 24 to 64 are allowed"),
        ("standard", "whsec_not base64 at all", "it is not whsec_ and base64"),
        ("github", "hunter2", "it has 7 bytes; a secret that nobody guesses has 16 or more"),
        ("bearer", "fifteen letters", "it has 15 bytes"),
    ] {
        let env = [("S".to_owned(), secret.to_owned())].into();
        let told = crate::endpoints::ready(&settings(&text(scheme)), &env).unwrap_err().to_string();
        assert!(told.contains(problem) && told.contains("environment S") && told.contains("shop"), "{told}");
        assert!(!told.contains(secret), "{told}");
    }
    let missing = crate::endpoints::ready(&settings(&text("github")), &BTreeMap::new()).unwrap_err();
    assert!(missing.to_string().contains("is not set"), "{missing}");
}
