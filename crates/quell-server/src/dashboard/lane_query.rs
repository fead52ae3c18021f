//! The language in which lanes are looked for: `state:running queue:chat key:+49* why:paused age>5m`.
//!
//! Words are joined by *and*. What the store can find by an index (queue, tenant, the beginning of a key, running, idle) is
//! asked of it; everything else is held against the lanes that it lists. One function reads the text and says where it is
//! wrong; another one decides about a lane. Both are pure.

use std::time::Duration;

use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::inspect::{LaneRow, Reason};
use quell::quell_core::lifecycle::RunState;

use crate::error::{Answer, Problem};
use crate::inspect::LanesQuery;

/// The longest text: an address has to hold it.
const CHARS_MAX: usize = 1_000;

/// What somebody looks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LaneQuery {
    queue: Option<String>,
    tenant: Option<String>,
    key_prefix: Option<String>,
    running: bool,
    idle: bool,
    /// What only a look at the lane can tell.
    looked_at: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq)]
struct Condition {
    negated: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    Queue(String),
    Tenant(String),
    KeyIs(String),
    KeyBegins(String),
    KeyContains(String),
    State(State),
    Why(Reason),
    Worker(String),
    /// How long its oldest event has been here.
    Age(Than, Duration),
    /// How long until it is due.
    DueIn(Than, Duration),
    Buffered(Than, u64),
}

/// As the table shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Run(RunState),
    Paused,
    Blocked,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Than {
    More,
    Less,
}

impl Than {
    fn holds<T: PartialOrd>(self, is: T, bound: T) -> bool {
        match self {
            Than::More => is > bound,
            Than::Less => is < bound,
        }
    }
}

impl LaneQuery {
    pub(super) fn parse(text: &str) -> Answer<LaneQuery> {
        if text.chars().count() > CHARS_MAX {
            return Err(wrong(format!("a filter has at most {CHARS_MAX} characters")));
        }
        let mut query = LaneQuery::default();
        for word in words(text)? {
            let (negated, rest) = match word.text.strip_prefix('-') {
                Some(rest) if !rest.is_empty() => (true, rest),
                _ => (false, word.text.as_str()),
            };
            query.add(negated, read(rest, &word)?);
        }
        // The store lists either by key or by lease; by lease it needs no further look.
        query.running &= query.key_prefix.is_none() && !query.idle;
        if query.running {
            let told = Condition { negated: false, what: What::State(State::Run(RunState::Running)) };
            query.looked_at.retain(|condition| *condition != told);
        }
        Ok(query)
    }

    /// What an index can find goes to the store, once; the rest is looked at.
    fn add(&mut self, negated: bool, what: What) {
        match &what {
            What::Queue(name) if !negated && self.queue.is_none() => self.queue = Some(name.clone()),
            What::Tenant(name) if !negated && self.tenant.is_none() => self.tenant = Some(name.clone()),
            What::KeyBegins(start) if !negated && self.key_prefix.is_none() => {
                self.key_prefix = Some(start.clone());
            }
            other => {
                match other {
                    What::KeyIs(key) if !negated && self.key_prefix.is_none() => {
                        self.key_prefix = Some(key.clone());
                    }
                    What::State(State::Run(RunState::Running)) | What::Why(Reason::Running) if !negated => {
                        self.running = true;
                    }
                    What::State(State::Idle) | What::Why(Reason::Idle) if !negated => self.idle = true,
                    _ => {}
                }
                self.looked_at.push(Condition { negated, what });
            }
        }
    }

    /// The part that the store answers by an index.
    pub(super) fn wish(&self, cursor: Option<String>, limit: usize) -> LanesQuery {
        LanesQuery {
            tenant: self.tenant.clone(),
            queue: self.queue.clone(),
            key_prefix: self.key_prefix.clone(),
            running: self.running,
            idle: self.idle,
            cursor,
            limit: Some(limit),
        }
    }

    /// Whether lanes have to be looked at one by one.
    pub(super) fn looks(&self) -> bool {
        !self.looked_at.is_empty()
    }

    /// The same in words, for filters that came in fields of their own.
    pub(super) fn words(fields: &[(&str, Option<&str>)]) -> String {
        let word = |(name, value): &(&str, Option<&str>)| -> Option<String> {
            let value = (*value)?.replace('\\', "\\\\").replace('"', "\\\"");
            let value = if *name == "key" { value.replace('*', "\\*") } else { value };
            let plain = !value.contains(|c: char| c.is_whitespace() || c == '"' || c == '\\');
            let star = if *name == "key" { "*" } else { "" };
            Some(if plain { format!("{name}:{value}{star}") } else { format!("{name}:\"{value}{star}\"") })
        };
        fields.iter().filter_map(word).collect::<Vec<_>>().join(" ")
    }

    /// Whether it asks for anything at all.
    pub(super) fn is_empty(&self) -> bool {
        *self == LaneQuery::default()
    }

    pub(super) fn matches(&self, row: &LaneRow, now: Timestamp) -> bool {
        self.looked_at.iter().all(|condition| condition.what.holds(row, now) != condition.negated)
    }
}

impl What {
    fn holds(&self, row: &LaneRow, now: Timestamp) -> bool {
        let key = row.lane.key.as_str();
        match self {
            What::Queue(name) => row.lane.queue.as_str() == name,
            What::Tenant(name) => row.lane.tenant.as_str() == name,
            What::KeyIs(text) => key == text,
            What::KeyBegins(text) => key.starts_with(text),
            What::KeyContains(text) => key.contains(text),
            What::State(State::Run(state)) => row.state == Some(*state),
            What::State(State::Paused) => row.paused_by.is_some(),
            What::State(State::Blocked) => row.blocked_by.is_some(),
            What::State(State::Idle) => row.state.is_none(),
            What::Why(reason) => *reason == row.reason,
            What::Worker(name) => row.worker.as_deref().is_some_and(|worker| worker.contains(name)),
            What::Age(than, bound) => row.since.is_some_and(|since| than.holds(now.since(since), *bound)),
            What::DueIn(than, bound) => row.due_at.is_some_and(|due| than.holds(due.since(now), *bound)),
            What::Buffered(than, bound) => than.holds(row.buffered, *bound),
        }
    }
}

/// What a filter asks for, told for `fuzzing.rs`.
pub(crate) fn told_lane_query(text: &str) -> Result<String, String> {
    let query = LaneQuery::parse(text).map_err(|problem| problem.detail().to_owned())?;
    let kinds: Vec<_> =
        query.looked_at.iter().map(|c| (c.negated, std::mem::discriminant(&c.what))).collect();
    let LaneQuery { queue, tenant, key_prefix, running, idle, .. } = &query;
    Ok(format!(
        "{} {} {} {running} {idle} {kinds:?}",
        queue.is_some(),
        tenant.is_some(),
        key_prefix.is_some()
    ))
}

/// Writes a filter for a key that begins so and reads it: panics when it does not ask for that, for `fuzzing.rs`.
pub(crate) fn reread_lane_words(key: &str) {
    let written = LaneQuery::words(&[("queue", Some("q")), ("key", Some(key))]);
    if let Ok(read) = LaneQuery::parse(&written) {
        assert_eq!(read.key_prefix.as_deref(), Some(key), "{written} asks for another key");
        assert_eq!(read.queue.as_deref(), Some("q"), "{written} asks for another queue");
    } else {
        assert!(written.chars().count() > CHARS_MAX, "{written} cannot be read");
    }
}

/// A word without its marks.
#[derive(Default)]
struct Word {
    text: String,
    /// Where a star of it means itself.
    stars: Vec<usize>,
}

/// Text is cut at spaces; within quotation marks they belong to the word, a mark is written `\"`, and a star that means
/// itself `\*`.
fn words(text: &str) -> Answer<Vec<Word>> {
    let (mut words, mut word) = (Vec::new(), None::<Word>);
    let mut quoted = false;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if quoted => {
                let (word, escaped) = (word.get_or_insert_default(), letters.next());
                word.stars.extend((escaped == Some('*')).then_some(word.text.len()));
                word.text.extend(escaped);
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().text.push(c),
        }
    }
    if quoted {
        return Err(wrong("a quotation mark is not closed".to_owned()));
    }
    words.extend(word);
    Ok(words)
}

/// A word, or what is left of it behind a minus.
fn read(word: &str, whole: &Word) -> Answer<What> {
    let Some(place) = word.find([':', '>', '<']) else { return Ok(What::KeyContains(word.to_owned())) };
    let (name, rest) = word.split_at(place);
    let (sign, value) = rest.split_at(1);
    let than = if sign == ">" { Than::More } else { Than::Less };
    match (name, sign) {
        ("queue", ":") => Ok(What::Queue(value.to_owned())),
        ("tenant", ":") => Ok(What::Tenant(value.to_owned())),
        ("key", ":") => Ok(read_key(value, whole)),
        ("state", ":") => read_state(value),
        ("why", ":") => {
            let known = Reason::ALL.into_iter().find(|reason| reason.as_str() == value);
            known.map(What::Why).ok_or_else(|| none_of("why", value, Reason::ALL.map(Reason::as_str)))
        }
        ("worker", ":") => Ok(What::Worker(value.to_owned())),
        ("age", ">" | "<") => Ok(What::Age(than, duration(value)?)),
        ("due", ">" | "<") => Ok(What::DueIn(than, duration(value)?)),
        ("buffered", ">" | "<") => {
            let number = value.parse().map_err(|_| wrong(format!("{value:?} is not a number")))?;
            Ok(What::Buffered(than, number))
        }
        // A key may have any of these signs in it.
        _ if !name.chars().all(|c| c.is_ascii_lowercase()) || name.is_empty() => {
            Ok(What::KeyContains(word.to_owned()))
        }
        _ => Err(wrong(format!(
            "{name}{sign} is not known: queue: tenant: key: state: why: worker: age> age< due> due< buffered> \
             buffered<. A key that looks like one is written key:\"*{word}*\""
        ))),
    }
}

/// `+49*` begins so, `*49*` and `*49` contain it, anything else is the whole key.
/// `is`, `begins*`, `*contains*`.
fn read_key(value: &str, whole: &Word) -> What {
    let from = whole.text.len() - value.len();
    let wild = |place: usize| !whole.stars.contains(&(from + place));
    if let Some(mut rest) = value.strip_prefix('*').filter(|_| wild(0)) {
        while let Some(shorter) = rest.strip_suffix('*').filter(|_| wild(rest.len())) {
            rest = shorter;
        }
        return What::KeyContains(rest.to_owned());
    }
    match value.strip_suffix('*').filter(|start| wild(start.len())) {
        Some(start) => What::KeyBegins(start.to_owned()),
        None => What::KeyIs(value.to_owned()),
    }
}

fn read_state(value: &str) -> Answer<What> {
    let run = RunState::ALL.into_iter().find(|state| state.as_str() == value && !state.is_final());
    let state = match value {
        "paused" => Some(State::Paused),
        "blocked" => Some(State::Blocked),
        "idle" => Some(State::Idle),
        _ => run.map(State::Run),
    };
    let known = ["pending", "running", "retryable", "paused", "blocked", "idle"];
    state.map(What::State).ok_or_else(|| none_of("state", value, known))
}

fn duration(value: &str) -> Answer<Duration> {
    DurationText::parse(value).map_err(wrong)
}

fn none_of<const N: usize>(name: &str, value: &str, known: [&str; N]) -> Problem {
    wrong(format!("{name}:{value} is not known; it is one of {}", known.join(", ")))
}

fn wrong(detail: String) -> Problem {
    Problem::bad_request(detail).at("q")
}

#[cfg(test)]
mod tests {
    use quell::quell_core::event::{Key, LaneKey, QueueName, Tenant};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn row(key: &str) -> LaneRow {
        let queue = QueueName::new("chat").unwrap();
        LaneRow {
            lane: LaneKey::new(queue, Key::new(key).unwrap()).of(Tenant::new("acme").unwrap()),
            state: Some(RunState::Pending),
            buffered: 3,
            in_flight: 0,
            priority: 4,
            head_seq: 3,
            due_at: Some(at(1_030)),
            paused_by: None,
            blocked_by: None,
            worker: None,
            token: None,
            claimed_at: None,
            lease_until: None,
            updated_at: at(1_000),
            since: Some(at(700)),
            window: None,
            reason: Reason::Window,
            why: String::new(),
        }
    }

    fn matches(text: &str, row: &LaneRow) -> bool {
        LaneQuery::parse(text).unwrap().matches(row, at(1_000))
    }

    #[test]
    fn what_an_index_finds_is_asked_of_the_store() {
        let query = LaneQuery::parse("queue:chat tenant:acme key:+49*").unwrap();
        let wish = query.wish(None, 10);
        assert_eq!((wish.queue.as_deref(), wish.tenant.as_deref()), (Some("chat"), Some("acme")));
        assert_eq!(wish.key_prefix.as_deref(), Some("+49"));
        assert!(!query.looks() && !query.is_empty());
        let running = LaneQuery::parse("state:running").unwrap();
        assert!(running.wish(None, 10).running && !running.looks());
        let both = LaneQuery::parse("key:a* state:running").unwrap();
        assert!(!both.wish(None, 10).running && both.looks(), "the store lists either by key or by lease");
        assert!(LaneQuery::parse("state:idle").unwrap().wish(None, 10).idle);
        let twice = LaneQuery::parse("queue:chat queue:jobs").unwrap();
        assert!(twice.looks() && !twice.matches(&row("k"), at(0)), "it cannot be in two");
        assert!(LaneQuery::parse("  ").unwrap().is_empty());
    }

    #[test]
    fn a_lane_is_held_against_every_word() {
        let waiting = row("+4917/a b");
        let yes = [
            "key:+4917*",
            "key:\"+4917/a b\"",
            "17",
            "key:*17*",
            "-key:x*",
            "state:pending",
            "-state:paused",
            "why:window",
            "age>4m59s",
            "age<5m1s",
            "due<31s due>29s",
            "buffered>2 buffered<4",
            "-worker:w1",
            "why:window age>1s 17/a",
            "-tenant:globex",
        ];
        for text in yes {
            assert!(matches(text, &waiting), "{text}");
        }
        let no =
            ["key:x", "18", "state:retryable", "why:due", "age>6m", "due>31s", "buffered>3", "-why:window"];
        for text in no {
            assert!(!matches(text, &waiting), "{text}");
        }
        let paused = LaneRow { paused_by: Some("ada".into()), reason: Reason::Paused, ..row("k") };
        assert!(matches("state:paused", &paused) && matches("why:paused", &paused));
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for (text, told) in [
            ("state:broken", "state:broken is not known; it is one of pending, running"),
            ("why:because", "it is one of running, expired"),
            ("colour:red", "colour: is not known: queue: tenant:"),
            ("age>soon", "not a duration"),
            ("buffered>many", "not a number"),
            ("key:\"a", "not closed"),
        ] {
            let problem = LaneQuery::parse(text).unwrap_err();
            assert!(problem.detail().contains(told), "{text}: {}", problem.detail());
        }
        assert!(LaneQuery::parse(&"x".repeat(CHARS_MAX + 1)).is_err());
        assert!(matches("49:17", &row("+49:17")), "a key may look like anything");
    }

    /// Found by the fuzzer: such a key could not be looked for.
    #[test]
    fn a_star_of_a_key_can_mean_itself() {
        for key in ["*", "*a", "a*b*", "**", "a\\*"] {
            let text = LaneQuery::words(&[("key", Some(key))]);
            let wish = LaneQuery::parse(&text).unwrap().wish(None, 1);
            assert_eq!(wish.key_prefix.as_deref(), Some(key), "{text}");
        }
        assert!(matches("key:\"\\*a\"", &row("*a")) && !matches("key:\"\\*a\"", &row("xa")));
        assert!(matches("key:*\"b\\*\"*", &row("ab*c")) && !matches("key:*\"b\\*\"*", &row("abc")));
    }

    #[test]
    fn fields_become_words_that_mean_the_same() {
        let text = LaneQuery::words(&[("queue", Some("chat")), ("tenant", None), ("key", Some("a \"b\\"))]);
        let wish = LaneQuery::parse(&text).unwrap().wish(None, 1);
        assert_eq!(
            (wish.queue.as_deref(), wish.key_prefix.as_deref()),
            (Some("chat"), Some("a \"b\\")),
            "{text}"
        );
    }
}
