//! What endpoints of these schemes may and may not say.

use std::collections::BTreeMap;

use quell::config::{Config, EndpointSettings, Flags, SecretSource, Settings, SettingsInput, SourceText};
use quell_chat::inbound::schemes;

fn resolve(text: &str) -> Result<Settings, String> {
    let config = Config::parse(text, "quell.toml").map_err(|error| error.to_string())?;
    let source = SourceText::new("quell.toml", text);
    let input =
        SettingsInput { config: Some((config, source)), env: &BTreeMap::new(), flags: Flags::default() };
    Settings::resolve_with(input, &schemes()).map_err(|error| error.to_string())
}

fn endpoint(text: &str) -> EndpointSettings {
    let settings = resolve(&format!("[queues.chat]\n[queues.other]\n[endpoints.wa]\n{text}\n")).unwrap();
    settings.endpoints[0].as_ref().clone()
}

fn refused(text: &str) -> String {
    resolve(&format!("[queues.chat]\n[queues.other]\n[endpoints.wa]\n{text}\n")).unwrap_err()
}

const TWILIO: &str = "scheme = \"twilio\"\nsecret_env = \"S\"\n";

#[test]
fn the_least_that_they_need_is_a_secret() {
    for scheme in ["wati", "meta"] {
        let least = endpoint(&format!("scheme = \"{scheme}\"\nsecret_env = \"S\""));
        assert_eq!((least.queue.as_str(), &least.path, &least.rules.flow), ("chat", &None, &None));
        assert!(least.verify.is_empty() && least.rules.key.is_empty());
    }
    let url = "public_url = \"https://bot.example.com/hooks/wa\"";
    assert_eq!(endpoint(&format!("{TWILIO}{url}")).queue.as_str(), "chat");
}

#[test]
fn every_setting_reaches_its_endpoint() {
    let whole = endpoint(
        "scheme = \"meta\"\nsecret_file = \"app.secret\"\nverify_token_file = \"verify\"\n\
         verify_token_env = [\"NEW\", \"OLD\"]\npath = \"/api/v2/webhook_x-1.php\"\nflow = \"sales\"\nqueue = \"other\"",
    );
    let env = |name: &str| SecretSource::Env(name.to_owned());
    assert_eq!(whole.verify, [SecretSource::File("verify".into()), env("NEW"), env("OLD")]);
    assert_eq!(whole.path.as_deref(), Some("/api/v2/webhook_x-1.php"));
    assert_eq!((whole.rules.flow.as_deref(), whole.queue.as_str()), (Some("sales"), "other"));
    let text = "[queues.chat]\n[endpoints.wa]\nscheme = \"meta\"\nsecret_env = \"S\"\nverify_token_env = \"V\"\npath = \"/w\"\n";
    let lines = resolve(text).unwrap().explain();
    for (setting, value, origin) in [
        ("endpoints.wa.queue", "chat", "default"),
        ("endpoints.wa.verify_token_env", "\"V\"", "file line 5"),
        ("endpoints.wa.path", "/w", "file line 6"),
        ("endpoints.wa.flow", "none", "default"),
    ] {
        let line = lines.iter().find(|line| line.setting == setting).unwrap_or_else(|| panic!("{setting}"));
        assert_eq!((line.value.as_str(), line.origin.to_string().as_str()), (value, origin), "{setting}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_its_place() {
    let wati = |more: &str| format!("scheme = \"wati\"\nsecret_env = \"S\"\n{more}");
    let path = |path: &str| wati(&format!("path = \"{path}\""));
    let long = path(&format!("/{}", "a".repeat(256)));
    let cases = [
        ("scheme = \"wati\"".to_owned(), "scheme \"wati\" needs a secret"),
        (
            TWILIO.to_owned(),
            "3:12: scheme \"twilio\" signs the address that it sends to, and there is no public_url",
        ),
        (TWILIO.to_owned(), "write it exactly as the provider has it"),
        (wati("key = \"/waId\""), "6:7: key is not for this scheme, which finds it by itself"),
        (wati("id = \"/id\""), "6:6: id is not for this scheme"),
        (wati("payload = \"/x\""), "payload is not for this scheme"),
        (wati("headers = [\"x\"]"), "headers is not for this scheme"),
        (wati("unkeyed = \"ignore\""), "unkeyed is not for this scheme"),
        (wati("verify_token_env = \"V\""), "6:20: verify_token_env is only for scheme = \"meta\""),
        (wati("verify_token_file = \"V\""), "verify_token_file is only for scheme = \"meta\""),
        (wati("flow = \" \""), "6:8: flow is a name of 1 to 64 bytes"),
        (wati("flow = \"a\\u0000\""), "flow is a name"),
        (wati("queue = \"chatt\""), "there is no queue \"chatt\""),
        (path("webhook"), "6:8: \"webhook\" is not a path of at most 256 bytes"),
        (path("/"), "\"/\" is not a path"),
        (path("//webhook"), "is not a path"),
        (path("/webhook/"), "is not a path"),
        (path("/a/../b"), "is not a path"),
        (path("/a%20b"), "is not a path"),
        (path("/{name}"), "is not a path"),
        (path("/a?b"), "is not a path"),
        (long, "is not a path"),
        (path("/v1"), "\"/v1\" is a path of the server itself, which has everything at /v1"),
        (path("/v1/claims"), "is a path of the server itself"),
        (path("/ui/x"), "is a path of the server itself"),
        (path("/hooks/other"), "is a path of the server itself"),
        (path("/metrics"), "is a path of the server itself"),
        (path("/openapi.json"), "is a path of the server itself"),
    ];
    for (text, message) in cases {
        let problem = refused(&text);
        assert!(problem.contains(message), "{text}\n{problem}");
    }
    assert_eq!(endpoint(&path("/v1x")).path.as_deref(), Some("/v1x"));
    let none =
        resolve("[queues.other]\n[endpoints.wa]\nscheme = \"wati\"\nsecret_env = \"S\"\n").unwrap_err();
    assert!(none.contains("2:12: there is no queue \"chat\"") && none.contains("[queues.chat]"), "{none}");
    let twice = "[queues.chat]\n[endpoints.a]\nscheme = \"wati\"\nsecret_env = \"S\"\npath = \"/w\"\n\
                 [endpoints.b]\nscheme = \"wati\"\nsecret_env = \"S\"\npath = \"/w\"\n";
    let twice = resolve(twice).unwrap_err();
    assert!(twice.contains("6:12: the endpoints \"a\" and \"b\" both have the path \"/w\""), "{twice}");
}

#[test]
fn a_secret_that_is_no_good_is_named_and_not_shown() {
    let text =
        "[queues.chat]\n[endpoints.wa]\nscheme = \"meta\"\nsecret_env = \"S\"\nverify_token_env = \"V\"\n";
    let settings = resolve(text).unwrap();
    let env = |secret: &str, verify: &str| {
        BTreeMap::from([("S".to_owned(), secret.to_owned()), ("V".to_owned(), verify.to_owned())])
    };
    let (ready, _) = quell::endpoints::ready(&settings, &env("0123456789abcdef", "eight888")).unwrap();
    assert_eq!(ready[0].proofs.verify.len(), 1);
    for (secret, verify, place) in
        [("short", "eight888", "environment S"), ("0123456789abcdef", "seven77", "environment V")]
    {
        let told = quell::endpoints::ready(&settings, &env(secret, verify)).unwrap_err().to_string();
        assert!(told.contains(place) && told.contains("bytes"), "{told}");
        assert!(!told.contains(secret) && !told.contains(verify), "{told}");
    }
}
