//! `hook install`, `uninstall` and `status`, on settings that hold other things.

use serde_json::{Value, json};

use super::host::Host;

fn settings(host: &Host, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(host.path(name)).unwrap()).unwrap()
}

fn ours(settings: &Value) -> Vec<String> {
    let hooks = settings["hooks"].as_object().cloned().unwrap_or_default();
    let mut names = Vec::new();
    for (name, groups) in hooks {
        let commands = groups.as_array().unwrap().iter().flat_map(|group| group["hooks"].as_array().unwrap());
        let commands = commands.filter_map(|hook| hook["command"].as_str());
        names.extend(commands.filter(|command| command.contains("quell")).map(|_| name.clone()));
    }
    names
}

const FILE: &str = "claude/settings.json";

fn theirs() -> Value {
    json!({
        "model": "opus", "env": { "A": "1" },
        "hooks": { "Stop": [{ "hooks": [{ "type": "command", "command": "say done" }] }] },
    })
}

#[test]
fn it_is_installed_once_and_taken_out_again_without_a_trace() {
    let host = Host::new();
    let text = serde_json::to_string_pretty(&theirs()).unwrap();
    std::fs::write(host.path(FILE), &text).unwrap();
    host.quell(&["hook", "status"]).exits(1).says("no; `quell hook install` does it");

    host.quell(&["hook", "install", "--dry-run"]).ok().complains("added: ").complains("was not changed");
    assert_eq!(std::fs::read_to_string(host.path(FILE)).unwrap(), text);

    let said =
        host.quell(&["hook", "install"]).ok().complains("installed in").complains("as it was before: ");
    let backup = said.err.lines().find_map(|line| line.split("as it was before: ").nth(1)).unwrap();
    assert_eq!(std::fs::read_to_string(backup).unwrap(), text);
    let installed = settings(&host, FILE);
    assert_eq!(ours(&installed).len(), 8, "{installed}");
    assert_eq!((&installed["model"], &installed["env"]), (&theirs()["model"], &theirs()["env"]));
    assert!(installed["hooks"]["Stop"].to_string().contains("say done"), "{installed}");

    let before = std::fs::read_to_string(host.path(FILE)).unwrap();
    host.quell(&["hook", "install"]).ok().complains("already installed");
    assert_eq!(std::fs::read_to_string(host.path(FILE)).unwrap(), before);
    host.quell(&["hook", "status"]).ok().says("yes").says(&host.database().display().to_string());
    let status = host.json(&["hook", "status"]);
    assert_eq!(
        (&status["installed"], &status["missing"], &status["spool"]),
        (&true.into(), &json!([]), &false.into())
    );
    assert_eq!(status["events"].as_array().unwrap().len(), 8);

    host.quell(&["hook", "uninstall"]).ok().complains("taken out of");
    assert_eq!(settings(&host, FILE), theirs());
    host.quell(&["hook", "uninstall"]).ok().complains("nothing of ours");
    host.quell(&["hook", "status"]).exits(1);
}

#[test]
fn what_was_installed_is_what_the_agent_can_call() {
    let host = Host::new();
    host.quell(&["hook", "install", "--print-continue"]).ok();
    let installed = settings(&host, FILE);
    let entry = &installed["hooks"]["Stop"][0]["hooks"][0];
    assert_eq!((&entry["type"], &entry["timeout"]), (&"command".into(), &5.into()));
    // As the agent does it: through a shell, in any folder.
    let mut command = std::process::Command::new("/bin/sh");
    let quell = host.command(&[]);
    command.env_clear().current_dir("/").arg("-c").arg(entry["command"].as_str().unwrap());
    command.envs(quell.get_envs().filter_map(|(name, value)| Some((name, value?))));
    host.write("s", 0..2);
    let said = host.feed(&mut command, host.event("Stop", "s").to_string().as_bytes()).ok();
    assert_eq!(
        (said.out.trim(), said.err.as_str()),
        (if quell_transcripts::shape::is_safe_for_continue("Stop") { "{\"continue\":true}" } else { "" }, "")
    );
    host.stored("s", 2);
}

#[test]
fn projects_have_settings_of_their_own() {
    let host = Host::new();
    for (scope, file) in [
        ("project", "work/.claude/settings.json"),
        ("local", "work/.claude/settings.local.json"),
        ("user", FILE),
    ] {
        host.quell(&["hook", "status", "--scope", scope]).exits(1);
        host.quell(&["hook", "install", "--scope", scope, "--newer-events"]).ok();
        assert_eq!(ours(&settings(&host, file)).len(), 12, "{scope}");
        host.quell(&["hook", "status", "--scope", scope]).ok();
        host.quell(&["hook", "uninstall", "--scope", scope]).ok();
        assert_eq!(ours(&settings(&host, file)), Vec::<String>::new(), "{scope}");
        host.quell(&["hook", "status", "--scope", scope]).exits(1);
    }
    let other = Host::new();
    let mut command = other.command(&["hook", "install"]);
    command.env_remove("CLAUDE_CONFIG_DIR");
    other.feed(&mut command, b"").ok();
    assert_eq!(ours(&settings(&other, "home/.claude/settings.json")).len(), 8);
}

#[test]
fn settings_that_cannot_be_kept_as_they_are_are_not_touched() {
    let host = Host::new();
    for text in ["{ // mine\n}", "{\"hooks\": 7}", "not json", "[]"] {
        std::fs::write(host.path(FILE), text).unwrap();
        for args in [&["hook", "install"][..], &["hook", "install", "--dry-run"]] {
            let said = host.quell(args);
            assert!(said.code != 0 && said.err.contains("settings.json"), "{text}: {said:?}");
        }
        assert_eq!(std::fs::read_to_string(host.path(FILE)).unwrap(), text);
    }
    std::fs::remove_file(host.path(FILE)).unwrap();
    // What would keep hooks from working is said before anything is changed.
    host.quell(&["hook", "install", "--store", "redis://localhost"]).exits(2).complains("Redis");
    host.quell(&["hook", "install", "--server", "http://h", "--token-file", "/nowhere"]).exits(2);
    let mut command = host.command(&["hook", "install"]);
    command.env("DEBOUNCE_SECONDS", "soon");
    host.feed(&mut command, b"").exits(2).complains("DEBOUNCE_SECONDS");
    assert!(!host.path(FILE).exists());
}

#[test]
fn another_store_and_another_version_replace_what_is_installed() {
    let host = Host::new();
    host.quell(&["hook", "install"]).ok();
    host.quell(&["hook", "install", "--store", "sqlite:own.db"]).ok().complains("replaced: ");
    let installed = settings(&host, FILE);
    assert_eq!(ours(&installed).len(), 8, "{installed}");
    let command = installed["hooks"]["Stop"][0]["hooks"][0]["command"].as_str().unwrap();
    assert!(command.contains(&host.path("work/own.db").display().to_string()), "{command}");
    // Switched off by the user, it is not installed.
    let mut off = installed.clone();
    off["disableAllHooks"] = true.into();
    std::fs::write(host.path(FILE), off.to_string()).unwrap();
    host.quell(&["hook", "status"]).exits(1).says("disableAllHooks");
    // In part.
    let mut part = installed;
    part["hooks"].as_object_mut().unwrap().remove("SessionEnd");
    std::fs::write(host.path(FILE), part.to_string()).unwrap();
    host.quell(&["hook", "status"]).exits(1).says("in part; missing: SessionEnd");
}
