//! What is looked at and what a key means: no terminal and no store, so every way through it can be tested.

use quell::quell_core::event::LaneKey;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::figures::{Figures, OpenLane};

/// A key's beginning and a reason are typed by people.
const TYPED_MAX: usize = 120;

/// What fills the screen below the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Lanes,
    Queues,
    Workers,
    Sources,
}

impl Pane {
    pub(super) const ALL: [Pane; 4] = [Pane::Lanes, Pane::Queues, Pane::Workers, Pane::Sources];

    pub(super) fn title(self) -> &'static str {
        match self {
            Pane::Lanes => "Lanes",
            Pane::Queues => "Queues",
            Pane::Workers => "Workers",
            Pane::Sources => "Sources",
        }
    }

    fn next(self) -> Pane {
        let at = Pane::ALL.iter().position(|pane| *pane == self).unwrap_or(0);
        Pane::ALL[(at + 1) % Pane::ALL.len()]
    }
}

/// What an operator does to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Flush,
    Pause,
    Resume,
    Cancel,
}

impl Act {
    pub(super) fn done(self) -> &'static str {
        match self {
            Act::Flush => "flushed",
            Act::Pause => "paused",
            Act::Resume => "resumed",
            Act::Cancel => "cancelled",
        }
    }
}

/// What the keyboard is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Watch,
    Help,
    /// The beginning of the keys that are shown.
    Find(String),
    /// Why a lane is to be cancelled: its events are discarded.
    Why(LaneKey, String),
}

/// What a key asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    Look,
    Act { lane: LaneKey, act: Act, why: Option<String> },
}

pub(super) struct View {
    pub(super) figures: Figures,
    pub(super) pane: Pane,
    pub(super) mode: Mode,
    /// The chosen row of the table.
    pub(super) row: usize,
    /// A lane that was opened, and what is known of it.
    pub(super) open: Option<LaneKey>,
    pub(super) detail: Option<OpenLane>,
    /// What was done last, or that the store is away.
    pub(super) said: Option<String>,
    pub(super) is_away: bool,
    filter: String,
}

impl View {
    pub(super) fn new(figures: Figures) -> Self {
        View {
            figures,
            pane: Pane::Lanes,
            mode: Mode::Watch,
            row: 0,
            open: None,
            detail: None,
            said: None,
            is_away: false,
            filter: String::new(),
        }
    }

    /// The beginning of the keys that are wanted.
    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    /// The lane that is wanted in full.
    pub(super) fn wants(&self) -> Option<&LaneKey> {
        self.open.as_ref()
    }

    /// The chosen lane stays chosen, wherever it stands now.
    pub(super) fn show(&mut self, figures: Figures) {
        let chosen = self.chosen().cloned();
        self.figures = figures;
        self.is_away = false;
        let found = chosen.and_then(|lane| self.figures.lanes.iter().position(|row| row.lane == lane));
        if let (Pane::Lanes, Some(at)) = (self.pane, found) {
            self.row = at;
        }
        self.row = self.row.min(self.rows().saturating_sub(1));
    }

    pub(super) fn show_lane(&mut self, detail: OpenLane) {
        // A slow answer about a lane that was left meanwhile is not shown.
        if self.open.as_ref() == Some(&detail.lane) {
            self.detail = Some(detail);
        }
    }

    pub(super) fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    pub(super) fn away(&mut self, text: String) {
        self.is_away = true;
        self.said = Some(text);
    }

    pub(super) fn rows(&self) -> usize {
        match self.pane {
            Pane::Lanes => self.figures.lanes.len(),
            Pane::Queues => self.figures.queues.len(),
            Pane::Workers => self.figures.workers.len(),
            Pane::Sources => self.figures.sources.len(),
        }
    }

    /// The lane that an act concerns: the opened one, or the chosen row.
    pub(super) fn chosen(&self) -> Option<&LaneKey> {
        match (&self.open, self.pane) {
            (Some(lane), _) => Some(lane),
            (None, Pane::Lanes) => self.figures.lanes.get(self.row).map(|row| &row.lane),
            (None, _) => None,
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Wish::Quit;
        }
        match std::mem::replace(&mut self.mode, Mode::Watch) {
            Mode::Watch => self.watching(key.code),
            // Any key ends the help.
            Mode::Help => Wish::Nothing,
            Mode::Find(text) => self.finding(text, key.code),
            Mode::Why(lane, text) => self.asking(lane, text, key.code),
        }
    }

    fn watching(&mut self, code: KeyCode) -> Wish {
        self.said = None;
        match code {
            KeyCode::Char('q') => Wish::Quit,
            KeyCode::Char('?' | 'h') => {
                self.mode = Mode::Help;
                Wish::Nothing
            }
            KeyCode::Char('/') => {
                self.mode = Mode::Find(self.filter.clone());
                Wish::Nothing
            }
            KeyCode::Tab => self.turn_to(self.pane.next()),
            KeyCode::Char(digit @ '1'..='4') => {
                let place = usize::from(digit as u8 - b'1');
                self.turn_to(Pane::ALL[place])
            }
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Enter | KeyCode::Right => self.open_chosen(),
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::PageDown => self.go(10),
            KeyCode::PageUp => self.go(-10),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Char('f') => self.act(Act::Flush),
            KeyCode::Char('p') => self.act(Act::Pause),
            KeyCode::Char('r') => self.act(Act::Resume),
            KeyCode::Char('c') => {
                if let Some(lane) = self.chosen().cloned() {
                    self.mode = Mode::Why(lane, String::new());
                }
                Wish::Nothing
            }
            _ => Wish::Nothing,
        }
    }

    fn turn_to(&mut self, pane: Pane) -> Wish {
        (self.pane, self.row, self.open, self.detail) = (pane, 0, None, None);
        Wish::Nothing
    }

    fn back(&mut self) -> Wish {
        if self.open.take().is_some() {
            self.detail = None;
            return Wish::Nothing;
        }
        if self.filter.is_empty() {
            return Wish::Nothing;
        }
        self.filter.clear();
        Wish::Look
    }

    fn open_chosen(&mut self) -> Wish {
        match self.pane {
            Pane::Lanes if self.open.is_none() => {
                self.open = self.chosen().cloned();
                Wish::Look
            }
            _ => Wish::Nothing,
        }
    }

    fn go(&mut self, by: isize) -> Wish {
        if self.open.is_none() {
            self.row = self.row.saturating_add_signed(by).min(self.rows().saturating_sub(1));
        }
        Wish::Nothing
    }

    fn act(&mut self, act: Act) -> Wish {
        match self.chosen().cloned() {
            Some(lane) => Wish::Act { lane, act, why: None },
            None => Wish::Nothing,
        }
    }

    fn finding(&mut self, mut text: String, code: KeyCode) -> Wish {
        match code {
            KeyCode::Esc => Wish::Nothing,
            KeyCode::Enter => {
                self.filter = text;
                (self.row, self.open, self.detail) = (0, None, None);
                self.pane = Pane::Lanes;
                Wish::Look
            }
            code => {
                typed(&mut text, code);
                self.mode = Mode::Find(text);
                Wish::Nothing
            }
        }
    }

    /// Nothing is cancelled without a reason.
    fn asking(&mut self, lane: LaneKey, mut text: String, code: KeyCode) -> Wish {
        match code {
            KeyCode::Esc => Wish::Nothing,
            KeyCode::Enter if !text.trim().is_empty() => {
                Wish::Act { lane, act: Act::Cancel, why: Some(text.trim().to_owned()) }
            }
            code => {
                typed(&mut text, code);
                self.mode = Mode::Why(lane, text);
                Wish::Nothing
            }
        }
    }
}

fn typed(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(letter) if text.chars().count() < TYPED_MAX && !letter.is_control() => {
            text.push(letter)
        }
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
}
