//! Draws a view: totals and rates above, one table or one lane below, what the keys do at the bottom.
//!
//! Everything that users wrote goes through [`text`], which leaves no control character for a terminal to obey.

use quell::quell_core::inspect::{LaneRow, QueueStats, Reason, SourceRow, span};
use quell::quell_core::store::Durability;
use quell::rates::Trend;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table, TableState, Wrap};

use super::figures::{Figures, OpenLane};
use super::view::{Mode, Pane, View};
use crate::times;

/// Longer texts are cut: a row is a line.
const CELL_CHARS: usize = 300;

/// With colours or without.
pub(super) struct Paint {
    colours: bool,
}

impl Paint {
    /// NO_COLOR and `--color never` are heard.
    pub(super) fn of_terminal() -> Paint {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        Paint { colours: choice != anstream::ColorChoice::Never }
    }

    #[cfg(test)]
    pub(super) fn plain() -> Paint {
        Paint { colours: false }
    }

    fn of(&self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(&self) -> Style {
        self.of(Color::Green)
    }

    fn warn(&self) -> Style {
        self.of(Color::Yellow)
    }

    /// Also without colours it stands out.
    fn bad(&self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }
}

fn soft() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn text(of: &str) -> String {
    times::one_line(of, CELL_CHARS)
}

pub(super) fn draw(frame: &mut Frame<'_>, view: &View, paint: &Paint) {
    let parts = [Constraint::Length(5), Constraint::Min(3), Constraint::Length(1)];
    let [head, body, foot] = Layout::vertical(parts).areas(frame.area());
    self::head(frame, head, &view.figures, paint);
    match &view.open {
        Some(_) => lane(frame, body, view, paint),
        None => table(frame, body, view, paint),
    }
    self::foot(frame, foot, view, paint);
    if view.mode == Mode::Help {
        help(frame, body);
    }
}

fn head(frame: &mut Frame<'_>, area: Rect, figures: &Figures, paint: &Paint) {
    let parts = [Constraint::Min(20), Constraint::Length(34)];
    let [words, rates] = Layout::horizontal(parts).areas(area);
    let about = &figures.health.description;
    let durability = match about.durability {
        Durability::Durable => Span::styled("durable", paint.good()),
        Durability::BestEffort(_) => Span::styled("best effort", paint.warn()),
    };
    let running: u64 = figures.queues.iter().map(|queue| queue.running).sum();
    let dead = figures.total().dead;
    let late = figures
        .oldest_due_ms()
        .map_or_else(|| "nothing is late".to_owned(), |ms| format!("oldest due {}", age(ms)));
    let lines = vec![
        Line::from(vec![
            Span::styled("quell ", strong()),
            Span::raw(format!("{} {} ", about.kind, about.version)),
            durability,
            Span::styled(format!("  {}", text(&about.place)), soft()),
        ]),
        equation(figures, paint),
        Line::from(vec![
            Span::raw(format!("running {running}  ")),
            Span::raw(late),
            Span::raw("  "),
            Span::styled(format!("dead {dead}"), if dead > 0 { paint.bad() } else { soft() }),
            Span::raw(format!("  workers {}", figures.workers.len())),
        ]),
        reasons(figures),
        warnings(figures, paint),
    ];
    frame.render_widget(Paragraph::new(lines), words);
    let [first, second, third] =
        Layout::vertical([Constraint::Length(2), Constraint::Length(2), Constraint::Length(1)]).areas(rates);
    rate(frame, first, "accepted/s", &figures.accepted, paint);
    rate(frame, second, "succeeded/s", &figures.succeeded, paint);
    let failing =
        figures.error_rate.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    frame.render_widget(Line::from(vec![Span::styled("error rate  ", soft()), Span::raw(failing)]), third);
}

/// The no-loss equation with its terms.
fn equation(figures: &Figures, paint: &Paint) -> Line<'static> {
    let total = figures.total();
    let holds = figures.broken().is_empty();
    let terms = format!(
        "{} accepted {} {} succeeded + {} buffered + {} in flight + {} delayed + {} dead + {} discarded",
        total.accepted,
        if holds { "=" } else { "≠" },
        total.succeeded,
        total.buffered,
        total.in_flight,
        total.delayed,
        total.dead,
        total.discarded
    );
    match holds {
        true => Line::from(vec![Span::styled("ok ", paint.good()), Span::raw(terms)]),
        false => Line::styled(format!("ALARM {terms}"), paint.bad()),
    }
}

/// How many lanes wait for what.
fn reasons(figures: &Figures) -> Line<'static> {
    let count = |reason: Reason| figures.lanes.iter().filter(|row| row.reason == reason).count();
    let told = |reason: Reason| match count(reason) {
        0 => None,
        n => Some(format!("{n} {}", word(reason))),
    };
    let parts: Vec<String> = Reason::ALL.into_iter().filter_map(told).collect();
    let more = if figures.more_lanes { " and more" } else { "" };
    match parts.is_empty() {
        true => Line::styled("no lane has anything to do", soft()),
        false => Line::raw(format!("lanes: {}{more}", parts.join(", "))),
    }
}

fn word(reason: Reason) -> String {
    reason.as_str().replace('_', " ")
}

fn warnings(figures: &Figures, paint: &Paint) -> Line<'static> {
    match figures.health.warnings.as_slice() {
        [] => Line::raw(""),
        [one] => Line::styled(text(&one.text), paint.warn()),
        [one, rest @ ..] => Line::styled(
            format!("{} (and {} more: `quell doctor`)", text(&one.text), rest.len()),
            paint.warn(),
        ),
    }
}

fn rate(frame: &mut Frame<'_>, area: Rect, name: &str, trend: &Trend, paint: &Paint) {
    let [words, line] = Layout::horizontal([Constraint::Length(20), Constraint::Min(1)]).areas(area);
    let now = trend.now.map_or_else(|| "–".to_owned(), |n| format!("{n:.1}"));
    let told = Line::from(vec![Span::styled(format!("{name:<12}"), soft()), Span::styled(now, strong())]);
    frame.render_widget(told, words);
    let wide = usize::from(line.width);
    let from = trend.steps.len().saturating_sub(wide);
    // In hundredths, so that less than one per second can be seen.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are small and not negative"
    )]
    let bars: Vec<u64> = trend.steps[from..].iter().map(|step| (step * 100.0) as u64).collect();
    frame.render_widget(Sparkline::default().data(bars).style(paint.good()), Rect { height: 1, ..line });
}

fn table(frame: &mut Frame<'_>, area: Rect, view: &View, paint: &Paint) {
    let figures = &view.figures;
    let (names, widths, rows): (Vec<&str>, Vec<Constraint>, Vec<Row<'_>>) = match view.pane {
        Pane::Lanes => (
            vec!["QUEUE", "KEY", "WAITS FOR", "BUFFERED", "DUE", "WHY IT WAITS"],
            vec![
                Constraint::Length(12),
                Constraint::Min(12),
                Constraint::Length(12),
                Constraint::Length(8),
                Constraint::Length(9),
                Constraint::Percentage(45),
            ],
            figures.lanes.iter().map(|row| lane_row(row, figures, paint)).collect(),
        ),
        Pane::Queues => (
            vec!["QUEUE", "ACCEPTED", "SUCCEEDED", "BUFFERED", "IN FLIGHT", "DEAD", "RUNNING", "OLDEST DUE"],
            vec![Constraint::Min(12); 8],
            figures.queues.iter().map(|queue| queue_row(queue, paint)).collect(),
        ),
        Pane::Workers => (
            vec!["WORKER", "PID", "STATE", "AT ONCE", "QUEUES", "HEARD OF"],
            vec![Constraint::Min(10); 6],
            figures
                .workers
                .iter()
                .map(|(about, seen_at)| {
                    let queues = about.queues.as_ref().map_or_else(
                        || "all".to_owned(),
                        |queues| queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                    );
                    let style = if about.state == "error_wait" { paint.bad() } else { Style::new() };
                    Row::new([
                        text(&about.worker),
                        about.pid.to_string(),
                        about.state.replace('_', " "),
                        about.concurrency.to_string(),
                        text(&queues),
                        format!("{} ago", span(figures.now(), *seen_at)),
                    ])
                    .style(style)
                })
                .collect(),
        ),
        Pane::Sources => (
            vec!["SOURCE", "ENABLED", "BREAKER", "STREAK", "TOKENS", "WAITING"],
            vec![Constraint::Min(9); 6],
            figures.sources.iter().map(|row| source_row(row, paint)).collect(),
        ),
    };
    let empty = rows.is_empty();
    let more = if view.pane == Pane::Lanes && figures.more_lanes { "+" } else { "" };
    let filter = match view.filter() {
        "" => String::new(),
        filter => format!(" beginning with {:?}", text(filter)),
    };
    let title = format!(" {} ({}{more}){filter} ", view.pane.title(), view.rows());
    let block = Block::bordered().title(title).title_bottom(tabs(view.pane));
    let inner = block.inner(area);
    let table = Table::new(rows, widths)
        .header(Row::new(names).style(soft()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(block);
    let mut state = TableState::default().with_selected((!empty).then_some(view.row));
    frame.render_stateful_widget(table, area, &mut state);
    if empty {
        let words = match view.pane {
            Pane::Lanes => "Nothing waits and nothing runs.",
            Pane::Queues => "No events yet: quell send hello world '{\"text\":\"hi\"}'",
            Pane::Workers => "No worker has told of itself: quell work",
            Pane::Sources => "No sources: [sources.NAME] in quell.toml declares one.",
        };
        let below = Rect { y: inner.y.saturating_add(1), height: inner.height.saturating_sub(1), ..inner };
        frame.render_widget(Paragraph::new(words).style(soft()), below);
    }
}

fn tabs(here: Pane) -> Line<'static> {
    let mut spans = Vec::new();
    for (place, pane) in Pane::ALL.into_iter().enumerate() {
        let style = if pane == here { strong() } else { soft() };
        spans.push(Span::styled(format!(" {} {} ", place + 1, pane.title()), style));
    }
    Line::from(spans)
}

fn lane_row<'a>(row: &LaneRow, figures: &Figures, paint: &Paint) -> Row<'a> {
    let now = figures.now();
    let style = match row.reason {
        Reason::Running => paint.good(),
        Reason::Backoff | Reason::Paused | Reason::QueuePaused | Reason::Source => paint.warn(),
        Reason::Blocked | Reason::Expired => paint.bad(),
        Reason::Due | Reason::Window | Reason::Idle => Style::new(),
    };
    let due = match row.due_at {
        Some(due) if due > now => span(due, now),
        Some(due) => format!("-{}", span(now, due)),
        None => "–".to_owned(),
    };
    Row::new([
        Line::raw(text(row.lane.queue.as_str())),
        Line::raw(text(row.lane.key.as_str())),
        Line::styled(word(row.reason), style),
        Line::raw(row.buffered.to_string()),
        Line::raw(due),
        Line::styled(text(&row.why), soft()),
    ])
}

fn queue_row<'a>(queue: &QueueStats, paint: &Paint) -> Row<'a> {
    let totals = &queue.totals;
    let mut name = queue.queue.to_string();
    if !queue.tenant.is_none() {
        name = format!("{}:{name}", queue.tenant);
    }
    if queue.paused_by.is_some() {
        name.push_str(" (paused)");
    }
    let style = match (totals.hold(), totals.dead) {
        (false, _) => paint.bad(),
        (true, 0) => Style::new(),
        (true, _) => paint.warn(),
    };
    let late = queue.oldest_due_ms.map_or_else(|| "–".to_owned(), age);
    let numbers =
        [totals.accepted, totals.succeeded, totals.buffered, totals.in_flight, totals.dead, queue.running];
    let cells = std::iter::once(text(&name)).chain(numbers.map(|n| n.to_string())).chain([late]);
    Row::new(cells).style(style)
}

fn source_row<'a>(row: &SourceRow, paint: &Paint) -> Row<'a> {
    use crate::commands::sources::{breaker, standing, tokens};
    let calm = row.enabled && breaker(row.breaker) == "closed";
    let cells = [
        text(row.name.as_str()),
        standing(row).to_owned(),
        breaker(row.breaker).to_owned(),
        row.failure_streak.to_string(),
        tokens(row),
        row.waiting.to_string(),
    ];
    Row::new(cells).style(if calm { Style::new() } else { paint.warn() })
}

fn age(ms: u64) -> String {
    use quell::quell_core::clock::Timestamp;
    span(Timestamp::from_millis(i64::try_from(ms).unwrap_or(i64::MAX)), Timestamp::from_millis(0))
}

fn lane(frame: &mut Frame<'_>, area: Rect, view: &View, paint: &Paint) {
    let name = view.open.as_ref().map_or_else(String::new, |lane| text(&lane.to_string()));
    let block = Block::bordered().title(format!(" Lane {name} ")).title_bottom(" Esc goes back ");
    let lines = match &view.detail {
        None => vec![Line::styled("looking…", soft())],
        Some(open) => lane_lines(open, view, paint),
    };
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), area);
}

fn lane_lines(open: &OpenLane, view: &View, paint: &Paint) -> Vec<Line<'static>> {
    let now = view.figures.now();
    let mut lines = Vec::new();
    match &open.detail {
        None => lines.push(Line::styled("It is idle, and nothing is kept of it but its runs.", soft())),
        Some(detail) => {
            let row = &detail.row;
            lines.push(Line::from(vec![
                Span::styled(format!("{}  ", word(row.reason)), strong()),
                Span::raw(text(&row.why)),
            ]));
            lines.push(Line::raw(format!(
                "buffered {}, in flight {}, kept for later {}, priority {}",
                row.buffered, row.in_flight, detail.delayed, row.priority
            )));
            for (name, run) in [("current run", detail.current_run), ("collecting run", detail.open_run)] {
                if let Some(run) = run {
                    lines.push(Line::from(vec![
                        Span::styled(format!("{name}  "), soft()),
                        Span::raw(run.to_string()),
                    ]));
                }
            }
            lines.push(Line::raw(""));
            for event in detail.events.iter().take(10) {
                let ago = span(now, event.received_at);
                let size = times::bytes(event.payload.len() as u64);
                lines.push(Line::raw(format!(
                    "#{} {} {ago} ago, {size}",
                    event.seq,
                    text(event.id.as_str())
                )));
            }
        }
    }
    lines.push(Line::raw(""));
    lines.push(Line::styled("RECENT RUNS", soft()));
    for run in &open.runs {
        let error = run.error.as_deref().map(|error| format!("  {}", text(error))).unwrap_or_default();
        let style = match run.state.as_str() {
            "failed" => paint.bad(),
            "retryable" => paint.warn(),
            _ => Style::new(),
        };
        let words = format!("{}  {}  {} events, try {}{error}", run.id, run.state, run.events, run.attempts);
        lines.push(Line::styled(words, style));
    }
    lines
}

fn foot(frame: &mut Frame<'_>, area: Rect, view: &View, paint: &Paint) {
    let line = match (&view.mode, &view.said) {
        (Mode::Find(typed), _) => {
            Line::raw(format!("keys beginning with: {}▏ (Enter finds, Esc leaves)", text(typed)))
        }
        (Mode::Why(lane, typed), _) => Line::styled(
            format!(
                "cancel {} and discard its events; why? {}▏ (Enter does it, Esc leaves it)",
                text(lane.key.as_str()),
                text(typed)
            ),
            paint.bad(),
        ),
        (_, Some(said)) if view.is_away => {
            Line::styled(format!("the store does not answer: {}", text(said)), paint.bad())
        }
        (_, Some(said)) => Line::styled(text(said), paint.good()),
        (_, None) => Line::styled(
            "q quit  ? help  Enter open  / find  f flush  p pause  r resume  c cancel  Tab table",
            soft(),
        ),
    };
    frame.render_widget(line, area);
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let lines = [
        "j k, arrows   choose a row; g and G go to the first and the last",
        "Enter         open the chosen lane; Esc goes back",
        "1 2 3 4, Tab  lanes, queues, workers, sources",
        "/             only keys that begin so; Esc shows all again",
        "f             flush: close the window, or end the backoff, now",
        "p  r          pause, resume: take events in and hand nothing out",
        "c             cancel: asks why, and discards what it does or collects",
        "q             end",
    ];
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let width = 70.min(area.width);
    let x = area.x + (area.width - width) / 2;
    let y = area.y + (area.height - height) / 2;
    let place = Rect { x, y, width, height };
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(" Keys ").title_bottom(" any key closes this ");
    frame.render_widget(Paragraph::new(lines.map(Line::raw).to_vec()).block(block), place);
}

#[cfg(test)]
mod tests;
