//! What a script says: who sends what when, how handlers behave, and what operators and accidents do.
//!
//! One line is one thing, in words. A line without `at` holds from the beginning. What is wrong is told with its line and with what
//! could stand there instead.

use std::fmt;
use std::time::Duration;

use quell::config::DurationText;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{EventId, Key, LaneKey, Payload, QueueName, SourceName, Tenant};
use quell::quell_core::limits;
use serde_json::Value;

/// Events of one script. Each of them is a line of the table, and a longer one is read by nobody.
const EVENTS_MAX: u64 = 100_000;
/// Workers of one script.
const WORKERS_MAX: usize = 100;
/// The longest time that can be simulated: retention and sweeps are lived through, too.
const LONGEST: Duration = Duration::from_secs(31 * 86_400);

/// A script that was read.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// The wall clock at 0s.
    pub(super) begins: Option<Timestamp>,
    /// Workers at the beginning; one unless it is said.
    pub(super) workers: Option<usize>,
    /// How long it goes on; until nothing is left unless it is said.
    pub(super) until: Option<Duration>,
    /// In the order of time; at the same moment what handlers do comes first, and then the order of lines.
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) at: Duration,
    pub(super) action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    Send {
        lane: LaneKey,
        payload: Payload,
        id: Option<EventId>,
        delay: Option<Duration>,
        priority: Option<u8>,
    },
    Handler {
        of: Place,
        habit: Habit,
    },
    CrashWorker(Option<usize>),
    StartWorker,
    StopWorker(Option<usize>),
    Pause(Place),
    Resume(Place),
    Flush(LaneKey),
    Cancel(LaneKey),
    Redrive(Place),
    Erase(LaneKey),
    Source {
        name: SourceName,
        hand: SourceHand,
    },
}

/// A queue, or one key of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Queue(QueueName),
    Lane(LaneKey),
}

impl Place {
    pub(super) fn queue(&self) -> &QueueName {
        match self {
            Place::Queue(queue) => queue,
            Place::Lane(lane) => &lane.queue,
        }
    }
}

/// How a handler behaves from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Habit {
    /// It takes between these two.
    Takes(Duration, Duration),
    /// Nothing goes wrong any more.
    Works,
    /// It goes wrong in this way, so often.
    Wrong(Wrong, Often),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wrong {
    /// It asks for another try.
    Fails,
    /// It says that this can never work.
    Refuses,
    Panics,
    /// By the fault of its source, which may ask for silence.
    Faults(Option<Duration>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Often {
    Times(u32),
    Always,
    Percent(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceHand {
    Disable,
    Enable,
    Reset,
}

/// What is wrong with a script, where, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptError {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) problem: String,
    pub(super) help: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n {} | {}", self.line, self.problem, self.line, self.text)
    }
}

/// A problem and its help, before its line is known.
struct Wrongly(String, String);

fn wrongly<T>(problem: impl Into<String>, help: impl Into<String>) -> Result<T, Wrongly> {
    Err(Wrongly(problem.into(), help.into()))
}

impl Script {
    pub(super) fn parse(text: &str) -> Result<Script, ScriptError> {
        let mut script = Script::default();
        for (place, text) in text.lines().enumerate() {
            let line = place + 1;
            let words = text.trim();
            if words.is_empty() || words.starts_with('#') {
                continue;
            }
            script.line(line, words).map_err(|Wrongly(problem, help)| ScriptError {
                line,
                text: words.to_owned(),
                problem,
                help,
            })?;
        }
        // At the same moment handlers are told first; else the order of lines stays.
        script.steps.sort_by_key(|step| (step.at, !matches!(step.action, Action::Handler { .. })));
        Ok(script)
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), Wrongly> {
        let mut words = Words(text);
        match words.peek() {
            "begin" => {
                words.next();
                let moment = words.next();
                let parsed = serde_json::from_value::<Timestamp>(Value::from(moment));
                let Ok(parsed) = parsed else {
                    return wrongly(
                        format!("{moment:?} is no moment"),
                        "write for example begin 2026-03-01T08:59:30Z",
                    );
                };
                self.begins = Some(parsed);
                words.end("begin 2026-03-01T08:59:30Z")
            }
            "workers" => {
                words.next();
                let count = words.next();
                match count.parse() {
                    Ok(count) if count <= WORKERS_MAX => self.workers = Some(count),
                    _ => {
                        return wrongly(
                            format!("{count:?} is no number of workers"),
                            format!("write for example workers 2; {WORKERS_MAX} at the most"),
                        );
                    }
                }
                words.end("workers 2")
            }
            "until" => {
                words.next();
                self.until = Some(moment(words.next())?);
                words.end("until 5m")
            }
            _ => {
                let at = if words.peek() == "at" {
                    words.next();
                    moment(words.next())?
                } else {
                    Duration::ZERO
                };
                self.action(line, at, words)
            }
        }
    }

    fn action(&mut self, line: usize, at: Duration, mut words: Words<'_>) -> Result<(), Wrongly> {
        let verb = words.next();
        let action = match verb {
            "send" => return self.send(line, at, words),
            "handler" => {
                let of = place(words.next())?;
                let habit = habit(&mut words)?;
                Action::Handler { of, habit }
            }
            "crash" | "stop" => {
                let number = worker(&mut words)?;
                if verb == "crash" { Action::CrashWorker(number) } else { Action::StopWorker(number) }
            }
            "start" => {
                if words.next() != "worker" {
                    return wrongly("only a worker can be started", "write start worker");
                }
                Action::StartWorker
            }
            "pause" => Action::Pause(place(words.next())?),
            "resume" => Action::Resume(place(words.next())?),
            "redrive" => Action::Redrive(place(words.next())?),
            "flush" => Action::Flush(lane(words.next())?),
            "cancel" => Action::Cancel(lane(words.next())?),
            "erase" => Action::Erase(lane(words.next())?),
            "source" => {
                let name = words.next();
                let name = SourceName::new(name)
                    .or_else(|error| wrongly(error.to_string(), "write for example source erp disable"))?;
                let hand = match words.next() {
                    "disable" => SourceHand::Disable,
                    "enable" => SourceHand::Enable,
                    "reset" => SourceHand::Reset,
                    other => {
                        return wrongly(
                            format!("a source cannot {other:?}"),
                            "write disable, enable or reset behind its name",
                        );
                    }
                };
                Action::Source { name, hand }
            }
            other => {
                return wrongly(
                    format!("{other:?} is nothing that can happen"),
                    "lines begin with begin, workers, until, or with at TIME and one of send, handler, flush, pause, resume, \
                     cancel, redrive, erase, source, crash worker, start worker, stop worker",
                );
            }
        };
        words.end("one thing per line")?;
        self.push(Step { line, at, action })
    }

    /// `send orders/alice {"n":1} x3 every 200ms id o-1 delay 5s priority 9`
    fn send(&mut self, line: usize, at: Duration, mut words: Words<'_>) -> Result<(), Wrongly> {
        let lane = lane(words.next())?;
        let payload = words.payload()?;
        let (mut times, mut every, mut id, mut delay, mut priority) = (1, Duration::ZERO, None, None, None);
        let help = "behind the key there may be a payload as JSON, then x3, every 200ms, id ID, delay 5s, priority 9";
        loop {
            match words.next() {
                "" => break,
                "every" => every = moment(words.next())?,
                "delay" => delay = Some(moment(words.next())?),
                "id" => {
                    let given =
                        EventId::new(words.next()).or_else(|error| wrongly(error.to_string(), help))?;
                    id = Some(given);
                }
                "priority" => match words.next().parse::<u8>() {
                    Ok(given) if given <= limits::PRIORITY_MAX => priority = Some(given),
                    _ => {
                        return wrongly(
                            "a priority is a number from 0 to 9",
                            "9 goes first; 4 unless it is said",
                        );
                    }
                },
                word => match word.strip_prefix('x').and_then(|count| count.parse::<u64>().ok()) {
                    Some(count) if (1..=EVENTS_MAX).contains(&count) => times = count,
                    Some(_) => {
                        return wrongly(
                            format!("{word} is not between x1 and x{EVENTS_MAX}"),
                            "a shorter script says the same",
                        );
                    }
                    None => return wrongly(format!("{word:?} is not known here"), help),
                },
            }
        }
        if id.is_some() && times > 1 {
            return wrongly(
                "several events with one id are one event",
                "leave the id away, or write two lines to see what a duplicate does",
            );
        }
        for count in 0..times {
            let wait = every.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
            let at = at.saturating_add(wait);
            let (lane, payload, id) = (lane.clone(), payload.clone(), id.clone());
            self.push(Step { line, at, action: Action::Send { lane, payload, id, delay, priority } })?;
        }
        Ok(())
    }

    fn push(&mut self, step: Step) -> Result<(), Wrongly> {
        if self.steps.len() as u64 >= EVENTS_MAX {
            return wrongly(
                format!("a script has {EVENTS_MAX} steps at the most, and this line is one more"),
                "send fewer events; a load test is `quell bench`",
            );
        }
        if step.at > LONGEST {
            return wrongly("this is later than 31 days after the beginning", "let it happen sooner");
        }
        self.steps.push(step);
        Ok(())
    }
}

/// A line, word by word.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    /// The next word, or nothing but "".
    fn next(&mut self) -> &'a str {
        let rest = self.0.trim_start();
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        word
    }

    fn peek(&self) -> &'a str {
        Words(self.0).next()
    }

    /// A JSON value, if one begins here: it may have blanks in it.
    fn payload(&mut self) -> Result<Payload, Wrongly> {
        let rest = self.0.trim_start();
        if !rest.starts_with(['{', '[', '"']) {
            return Ok(Payload::of(&serde_json::json!({})));
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                self.0 = &rest[values.byte_offset()..];
                Ok(Payload::of(&value))
            }
            Some(Err(error)) => {
                wrongly(format!("the payload is not valid JSON: {error}"), "write for example {\"n\":1}")
            }
            None => Ok(Payload::of(&serde_json::json!({}))),
        }
    }

    fn end(&mut self, example: &str) -> Result<(), Wrongly> {
        match self.next() {
            "" => Ok(()),
            more => wrongly(format!("{more:?} is one word too many"), format!("write {example}")),
        }
    }
}

fn moment(word: &str) -> Result<Duration, Wrongly> {
    if word == "0" {
        return Ok(Duration::ZERO);
    }
    if word.is_empty() {
        return wrongly("a time is missing", "write for example 200ms, 5s or 1m30s");
    }
    match DurationText::parse(word) {
        Ok(length) if length <= LONGEST => Ok(length),
        Ok(_) => wrongly(format!("{word} is longer than 31 days"), "a simulation is for what happens sooner"),
        Err(problem) => wrongly(problem, "a time is one word"),
    }
}

/// `queue`, `queue/key` or `tenant:queue/key`.
fn place(word: &str) -> Result<Place, Wrongly> {
    match word.contains('/') {
        true => lane(word).map(Place::Lane),
        false if word.is_empty() => {
            wrongly("a queue or a key is missing", "write for example orders or orders/alice")
        }
        false => match QueueName::new(word) {
            Ok(queue) => Ok(Place::Queue(queue)),
            Err(error) => wrongly(error.to_string(), "write for example orders or orders/alice"),
        },
    }
}

fn lane(word: &str) -> Result<LaneKey, Wrongly> {
    const HELP: &str = "write QUEUE/KEY, for example orders/alice, or TENANT:QUEUE/KEY";
    let Some((queue, key)) = word.split_once('/') else {
        return wrongly(format!("{word:?} names no key"), HELP);
    };
    let (tenant, queue) = match queue.split_once(':') {
        Some((tenant, queue)) => {
            (Tenant::new(tenant).or_else(|error| wrongly(error.to_string(), HELP))?, queue)
        }
        None => (Tenant::none(), queue),
    };
    let queue = QueueName::new(queue).or_else(|error| wrongly(error.to_string(), HELP))?;
    let key = Key::new(key).or_else(|error| wrongly(error.to_string(), HELP))?;
    Ok(LaneKey::new(queue, key).of(tenant))
}

fn worker(words: &mut Words<'_>) -> Result<Option<usize>, Wrongly> {
    if words.next() != "worker" {
        return wrongly("only a worker can crash or stop", "write crash worker, or crash worker 2");
    }
    match words.next() {
        "" => Ok(None),
        number => match number.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => wrongly(
                format!("{number:?} is no number of a worker"),
                "the first one is worker 1; without a number it is the first that is there",
            ),
        },
    }
}

/// `takes 5s`, `takes 1s..3s`, `works`, `fails 2 times`, `fails 20%`, `refuses always`, `faults 3 times for 30s`.
fn habit(words: &mut Words<'_>) -> Result<Habit, Wrongly> {
    const HELP: &str = "a handler takes 5s, takes 1s..3s, works, or it fails, refuses, panics or faults: once, 2 times, always, 20%";
    let wrong = match words.next() {
        "takes" => {
            let word = words.next();
            let (from, to) = word.split_once("..").unwrap_or((word, word));
            let (from, to) = (moment(from)?, moment(to)?);
            if to < from {
                return wrongly(format!("{word} ends before it begins"), "write the shorter time first");
            }
            return Ok(Habit::Takes(from, to));
        }
        "works" => return Ok(Habit::Works),
        "fails" => Wrong::Fails,
        "refuses" => Wrong::Refuses,
        "panics" => Wrong::Panics,
        "faults" => Wrong::Faults(None),
        other => return wrongly(format!("{other:?} is nothing that a handler does"), HELP),
    };
    let often = match words.next() {
        "once" => Often::Times(1),
        "always" => Often::Always,
        word => match (word.strip_suffix('%').map(str::parse), word.parse()) {
            (Some(Ok(percent)), _) if percent <= 100 => Often::Percent(percent),
            (None, Ok(times)) if words.next() == "times" => Often::Times(times),
            _ => return wrongly(format!("{word:?} does not say how often"), HELP),
        },
    };
    match (wrong, words.peek()) {
        (Wrong::Faults(_), "for") => {
            words.next();
            Ok(Habit::Wrong(Wrong::Faults(Some(moment(words.next())?)), often))
        }
        _ => Ok(Habit::Wrong(wrong, often)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(text: &str) -> Vec<Step> {
        Script::parse(text).unwrap().steps
    }

    fn problem(text: &str) -> (String, String) {
        let error = Script::parse(text).unwrap_err();
        (error.to_string(), error.help)
    }

    #[test]
    fn a_burst_is_as_many_events_as_it_says_at_the_times_it_says() {
        let steps = steps("at 1s send orders/alice {\"n\": 1} x3 every 200ms\nsend orders/bob\n");
        let times: Vec<u128> = steps.iter().map(|step| step.at.as_millis()).collect();
        assert_eq!(times, [0, 1_000, 1_200, 1_400]);
        let Action::Send { payload, .. } = &steps[1].action else { panic!("{steps:?}") };
        assert_eq!(payload.as_str(), "{\"n\":1}");
    }

    #[test]
    fn comments_empty_lines_and_the_order_of_lines_at_one_moment_are_kept() {
        let steps = steps("# first\n\nat 1s pause orders\nat 1s resume orders\nat 0 flush orders/a\n");
        let lines: Vec<usize> = steps.iter().map(|step| step.line).collect();
        assert_eq!(lines, [5, 3, 4]);
    }

    #[test]
    fn handlers_behave_as_they_are_told() {
        let habits: Vec<Habit> = steps(
            "handler orders takes 1s..3s\nhandler orders/a fails 2 times\nhandler orders refuses once\n\
             handler orders panics 20%\nhandler orders faults always for 30s\nhandler orders works\n",
        )
        .into_iter()
        .map(|step| match step.action {
            Action::Handler { habit, .. } => habit,
            other => panic!("{other:?}"),
        })
        .collect();
        let second = Duration::from_secs;
        assert_eq!(
            habits,
            [
                Habit::Takes(second(1), second(3)),
                Habit::Wrong(Wrong::Fails, Often::Times(2)),
                Habit::Wrong(Wrong::Refuses, Often::Times(1)),
                Habit::Wrong(Wrong::Panics, Often::Percent(20)),
                Habit::Wrong(Wrong::Faults(Some(second(30))), Often::Always),
                Habit::Works,
            ]
        );
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_what_to_write_instead() {
        let cases = [
            ("at 0s sned orders/a", "line 1: \"sned\" is nothing that can happen", "send"),
            ("# x\nat 5 send orders/a", "line 2: \"5\" is not a duration", "one word"),
            ("at 0s send orders", "\"orders\" names no key", "QUEUE/KEY"),
            ("send orders/a {\"n\":", "not valid JSON", "{\"n\":1}"),
            ("send orders/a evry 5s", "\"evry\" is not known here", "every 200ms"),
            ("send orders/a x0", "not between x1", "shorter"),
            ("send orders/a id o-1 x2", "one id", "duplicate"),
            ("send orders/a priority 10", "from 0 to 9", "9 goes first"),
            ("handler orders fails often", "\"often\" does not say how often", "2 times"),
            ("handler orders sleeps", "\"sleeps\" is nothing that a handler does", "takes 5s"),
            ("handler orders takes 3s..1s", "ends before it begins", "shorter time first"),
            ("crash server", "only a worker can crash", "crash worker"),
            ("source erp break", "cannot \"break\"", "disable"),
            ("pause orders now", "one word too many", "one thing per line"),
            ("workers many", "no number of workers", "workers 2"),
            ("begin tomorrow", "no moment", "2026"),
            ("at 40d flush orders/a", "longer than 31 days", "sooner"),
        ];
        for (text, said, help) in cases {
            let (problem, helps) = problem(text);
            assert!(problem.contains(said), "{text}: {problem}");
            assert!(helps.contains(help), "{text}: {helps}");
        }
    }

    #[test]
    fn a_script_has_a_bound() {
        let (problem, _) = problem("send orders/a x60000\nsend orders/b x60000\n");
        assert!(problem.contains("line 2: a script has 100000 steps at the most"), "{problem}");
    }
}
