//! What the view shows and what its keys do, drawn into a buffer of its own.

use quell::quell_core::batch::RunId;
use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{Key, LaneKey, QueueName, Tenant};
use quell::quell_core::inspect::{Concern, Health};
use quell::quell_core::lifecycle::RunState;
use quell::quell_core::store::Description;
use quell::quell_core::totals::Totals;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::super::view::{Act, Wish};
use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn lane(key: &str, state: RunState, due: Option<i64>) -> LaneRow {
    let reason = if state == RunState::Running { Reason::Running } else { Reason::Window };
    LaneRow {
        lane: LaneKey::new(QueueName::new("chat").unwrap(), Key::new(key).unwrap()),
        state: Some(state),
        buffered: 3,
        in_flight: 0,
        priority: 4,
        head_seq: 3,
        due_at: due.map(at),
        paused_by: None,
        blocked_by: None,
        worker: None,
        token: None,
        claimed_at: None,
        lease_until: None,
        updated_at: at(0),
        since: Some(at(0)),
        window: None,
        reason,
        why: "buffered 3, due in 2.0s (quiet)".to_owned(),
    }
}

fn figures(lanes: Vec<LaneRow>) -> Figures {
    let totals = Totals { accepted: 10, succeeded: 6, buffered: 3, dead: 1, ..Totals::default() };
    Figures {
        health: Health {
            description: Description {
                kind: "sqlite",
                place: "quell.db".to_owned(),
                version: "3.50".to_owned(),
                schema: 6,
                durability: Durability::Durable,
            },
            now: at(10_000),
            wall_divergence_ms: 0,
            facts: Vec::new(),
            warnings: Vec::new(),
        },
        queues: vec![QueueStats {
            tenant: Tenant::none(),
            queue: QueueName::new("chat").unwrap(),
            totals,
            running: 1,
            paused_by: None,
            oldest_due_ms: Some(4_000),
        }],
        lanes,
        more_lanes: false,
        workers: Vec::new(),
        sources: Vec::new(),
        accepted: Trend { steps: vec![1.0, 2.0], now: Some(1.5) },
        succeeded: Trend { steps: vec![0.0], now: Some(0.0) },
        error_rate: Some(0.25),
    }
}

fn two() -> View {
    let lanes = vec![lane("ada", RunState::Pending, Some(12_000)), lane("bob", RunState::Running, None)];
    View::new(figures(lanes))
}

fn drawn(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, view, &Paint::plain())).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, code: KeyCode) -> Wish {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn type_in(view: &mut View, text: &str) {
    for letter in text.chars() {
        assert_eq!(press(view, KeyCode::Char(letter)), Wish::Nothing);
    }
}

fn key_of(view: &View) -> Option<&str> {
    view.chosen().map(|lane| lane.key.as_str())
}

#[test]
fn the_first_screen_says_whether_it_is_fine_and_why_keys_wait() {
    let screen = drawn(&two(), 140, 24);
    for text in [
        "sqlite 3.50 durable",
        "ok 10 accepted = 6 succeeded + 3 buffered + 0 in flight",
        "oldest due 4.0s",
        "dead 1",
        "lanes: 1 running, 1 window",
        "error rate  25.0 %",
        "Lanes (2)",
        "ada",
        "due in 2.0s (quiet)",
        "q quit",
    ] {
        assert!(screen.contains(text), "{text}:\n{screen}");
    }
}

#[test]
fn totals_that_do_not_add_up_are_an_alarm_and_a_concern_is_told() {
    let mut view = two();
    view.figures.queues[0].totals.accepted = 11;
    view.figures.health.warnings = vec![Concern::new("the log is large", "end the reader")];
    let screen = drawn(&view, 140, 24);
    assert!(screen.contains("ALARM 11 accepted ≠ 6 succeeded"), "{screen}");
    assert!(screen.contains("the log is large"), "{screen}");
}

#[test]
fn it_is_drawn_at_any_size() {
    let mut view = two();
    for (width, height) in [(1, 1), (20, 6), (80, 24), (300, 100)] {
        drawn(&view, width, height);
    }
    press(&mut view, KeyCode::Char('?'));
    assert!(drawn(&view, 100, 24).contains("any key closes this"));
    drawn(&view, 10, 4);
}

#[test]
fn what_users_wrote_cannot_steer_the_terminal() {
    let mut row = lane("\u{1b}[2J\u{7}evil", RunState::Pending, None);
    row.why = "\u{1b}]0;owned\u{7}".to_owned();
    let screen = drawn(&View::new(figures(vec![row])), 140, 24);
    assert!(screen.contains("evil") && !screen.contains('\u{1b}') && !screen.contains('\u{7}'), "{screen:?}");
}

#[test]
fn rows_are_chosen_and_the_choice_follows_its_lane() {
    let mut view = two();
    assert_eq!(key_of(&view), Some("ada"));
    press(&mut view, KeyCode::Char('j'));
    press(&mut view, KeyCode::Down);
    assert_eq!(key_of(&view), Some("bob"), "there is no row below the last");
    let later = vec![
        lane("aa", RunState::Pending, None),
        lane("ada", RunState::Pending, None),
        lane("bob", RunState::Running, None),
    ];
    view.show(figures(later));
    assert_eq!(key_of(&view), Some("bob"));
    view.show(figures(vec![lane("ada", RunState::Pending, None)]));
    assert_eq!(key_of(&view), Some("ada"));
    view.show(figures(Vec::new()));
    assert_eq!(key_of(&view), None);
    assert_eq!(press(&mut view, KeyCode::Char('f')), Wish::Nothing);
}

#[test]
fn a_lane_is_opened_acted_on_and_left() {
    let mut view = two();
    assert_eq!(press(&mut view, KeyCode::Enter), Wish::Look);
    let lane = view.wants().cloned().unwrap();
    let run = RunId { lane: 1, number: 2 };
    let mut ended = quell_run(&lane, run);
    ended.error = Some("the till is locked".to_owned());
    view.show_lane(OpenLane { lane: lane.clone(), detail: None, runs: vec![ended] });
    let screen = drawn(&view, 120, 24);
    assert!(screen.contains("Lane chat/ada") && screen.contains("the till is locked"), "{screen}");
    let flush = Wish::Act { lane, act: Act::Flush, why: None };
    assert_eq!(press(&mut view, KeyCode::Char('f')), flush);
    view.say("flushed ada".to_owned());
    assert!(drawn(&view, 120, 24).contains("flushed ada"));
    press(&mut view, KeyCode::Esc);
    assert!(view.wants().is_none() && drawn(&view, 120, 24).contains("Lanes (2)"));
}

fn quell_run(lane: &LaneKey, id: RunId) -> quell::quell_core::inspect::RunRow {
    use quell::quell_core::lane::Lane;
    let mut of = Lane::new(id.lane, at(0));
    let policy = quell::quell_core::event::AppendPolicy::default().into();
    let event_id = quell::quell_core::event::EventId::new("e").unwrap();
    let event = quell::quell_core::event::NewEvent::new(
        lane.clone(),
        quell::quell_core::event::NewEventId::Made(event_id),
        quell::quell_core::event::Payload::of(&serde_json::json!(1)),
        policy,
    );
    of.append(at(0), 1, &event, None, || id.number);
    quell::quell_core::inspect::RunRow::of_open(&of, lane).unwrap()
}

#[test]
fn nothing_is_cancelled_without_a_reason() {
    let mut view = two();
    press(&mut view, KeyCode::Char('c'));
    assert!(drawn(&view, 120, 24).contains("why?"));
    assert_eq!(press(&mut view, KeyCode::Enter), Wish::Nothing, "an empty reason is none");
    type_in(&mut view, "  stuck q");
    press(&mut view, KeyCode::Backspace);
    let Wish::Act { lane, act: Act::Cancel, why } = press(&mut view, KeyCode::Enter) else {
        panic!("it was not asked for")
    };
    assert_eq!((lane.key.as_str(), why.as_deref()), ("ada", Some("stuck")));
    press(&mut view, KeyCode::Char('c'));
    type_in(&mut view, "no");
    assert_eq!(press(&mut view, KeyCode::Esc), Wish::Nothing);
    assert_eq!(view.mode, Mode::Watch);
}

#[test]
fn keys_are_found_by_their_beginning_and_tables_are_changed() {
    let mut view = two();
    press(&mut view, KeyCode::Char('/'));
    type_in(&mut view, "order-");
    assert!(drawn(&view, 120, 24).contains("keys beginning with: order-"));
    assert_eq!(press(&mut view, KeyCode::Enter), Wish::Look);
    assert_eq!(view.filter(), "order-");
    assert_eq!(press(&mut view, KeyCode::Esc), Wish::Look);
    assert_eq!(view.filter(), "");
    press(&mut view, KeyCode::Tab);
    assert!(drawn(&view, 120, 24).contains("OLDEST DUE"));
    press(&mut view, KeyCode::Char('3'));
    assert!(drawn(&view, 120, 24).contains("No worker has told of itself"));
    assert_eq!(press(&mut view, KeyCode::Char('c')), Wish::Nothing);
    assert_eq!(view.mode, Mode::Watch, "there is no lane to cancel");
    assert_eq!(press(&mut view, KeyCode::Char('q')), Wish::Quit);
    assert_eq!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Wish::Quit);
}

#[test]
fn a_store_that_is_away_is_told_of_and_what_was_seen_stays() {
    let mut view = two();
    view.away("connection refused".to_owned());
    let screen = drawn(&view, 120, 24);
    assert!(
        screen.contains("the store does not answer: connection refused") && screen.contains("ada"),
        "{screen}"
    );
}
