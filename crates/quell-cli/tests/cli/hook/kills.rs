//! Workers that are killed at any moment: in the end everything is stored, once.

use quell::clock::Chance;

use super::host::{Host, Role, fixture, kill, millis, until};

/// As many as the variable says, or what a test may take.
fn wanted() -> usize {
    std::env::var("QUELL_INGEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[test]
fn workers_killed_at_random_moments_store_everything_once() {
    let seed = Chance::from_system().number();
    println!("seed {seed}");
    let chance = Chance::seeded(seed);
    let host = Host::debouncing(Some("0.02"));
    let text = std::fs::read_to_string(fixture("transcripts/large_2mb.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().take(400).collect();
    let below = |most: u64| chance.number() % most;
    let session = |number: usize| format!("killed-{number:03}");
    let mut hooks = 0;
    let (mut kills, mut count) = (0, 0);
    while kills < wanted() {
        // A run that is met twelve times is given up, and so it should be: now and then one gets through.
        if count % 6 == 5 && kills > 0 {
            host.stop(&session(count - 1));
            hooks += 1;
            until("what is left is read", || host.workers().is_empty());
        }
        assert!(count < 10 * wanted(), "only {kills} of {count} workers were met");
        let number = count;
        count += 1;
        let (id, part) = (session(number), 30 + usize::try_from(below(30)).unwrap());
        // Lines of another length each time, with ids of their own.
        let own: String = lines
            .iter()
            .skip(usize::try_from(below(300)).unwrap())
            .take(part)
            .enumerate()
            .map(|(at, line)| renamed(line, &id, at))
            .collect();
        super::host::append(&host.transcript(&id), &own);
        host.stop(&id);
        hooks += 1;
        // Its life is short: some are met while they start, some in the middle of a pass, some at their end.
        millis(below(120));
        // The worker alone, and another is started; or both, and then the next hook makes up for it.
        let both = below(2) == 0;
        for (pid, role) in host.processes() {
            if both || role == Role::Worker {
                kill(pid);
                kills += usize::from(role == Role::Worker);
            }
        }
    }
    println!("{kills} workers were killed in {count} ingests");
    // Both may have been killed the last time.
    host.stop(&session(count - 1));
    let undisturbed = Host::debouncing(Some("0.02"));
    for number in 0..count {
        std::fs::copy(host.transcript(&session(number)), undisturbed.transcript(&session(number))).unwrap();
    }
    let folder = undisturbed.path("claude/projects").display().to_string();
    undisturbed.quell(&["sessions", "import", &folder]).ok();
    let numbers = |host: &Host| {
        let sql = "SELECT count(*) || ' messages, ' || count(DISTINCT uuid) || ' ids, ' || total(length(text)) || ' bytes, '
                     || total(is_prompt) || ' prompts, ' || (SELECT total(input_tokens) || ' in, ' || total(output_tokens)
                     || ' out, ' || count(*) FROM transcripts_usage)
                   FROM transcripts_message";
        let connection = host.connection().unwrap();
        connection.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap_or_default()
    };
    let right = numbers(&undisturbed);
    until("everything is stored", || {
        assert_eq!(host.number("SELECT count(*) FROM run WHERE state = 4"), 0, "a run was given up");
        if numbers(&host) == right {
            return true;
        }
        // Whoever could have worked on it may have been killed with the one who looks after it.
        assert_ne!(host.processes(), [], "nobody works on what is left:\n{}", host.log());
        false
    });
    until("the worker ends", || host.workers().is_empty());
    host.quiet();
    assert_eq!(numbers(&host), right);
    let kept = "SELECT count(*) FROM transcripts_event";
    assert_eq!(host.number(kept), hooks + 1);
    let totals = |host: &Host| {
        let sql = "SELECT total(messages) || ' ' || total(input_tokens) || ' ' || total(output_tokens)
                   FROM transcripts_session";
        host.connection().unwrap().query_row(sql, [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(totals(&host), totals(&undisturbed), "what a session adds up is right, too");
}

fn renamed(line: &str, session: &str, at: usize) -> String {
    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["sessionId"] = session.into();
    line["uuid"] = format!("{session}-{at}").into();
    if line["message"]["id"].is_string() {
        line["message"]["id"] = format!("msg-{session}-{at}").into();
    }
    format!("{line}\n")
}
