//! The terminal: taken when the view opens, and given back as it was, however that ends.

use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent};
use tokio::sync::mpsc;

use super::draw::{Paint, draw};
use super::view::View;

/// Keys that wait to be understood; a reader types no faster.
const WAITING: usize = 64;

/// What happened at the terminal.
pub(super) enum Seen {
    Key(KeyEvent),
    Resized,
    /// Nothing, for as long as was to be waited.
    Nothing,
    /// There is no terminal any more.
    Gone,
}

pub(super) struct Screen {
    terminal: DefaultTerminal,
    paint: Paint,
    events: mpsc::Receiver<Event>,
}

impl Screen {
    /// From here until it is dropped the terminal shows the view alone, and keys are not echoed. Also a panic gives it back.
    pub(super) fn open() -> std::io::Result<Screen> {
        let terminal = ratatui::try_init()?;
        let (tell, events) = mpsc::channel(WAITING);
        // Reading a terminal blocks; the thread ends with the process.
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if tell.blocking_send(event).is_err() {
                    break;
                }
            }
        });
        Ok(Screen { terminal, paint: Paint::of_terminal(), events })
    }

    pub(super) fn draw(&mut self, view: &View) -> std::io::Result<()> {
        self.terminal.draw(|frame| draw(frame, view, &self.paint))?;
        Ok(())
    }

    pub(super) async fn next(&mut self, patience: Duration) -> Seen {
        match tokio::time::timeout(patience, self.events.recv()).await {
            Ok(Some(Event::Key(key))) => Seen::Key(key),
            Ok(Some(_)) => Seen::Resized,
            Ok(None) => Seen::Gone,
            Err(_) => Seen::Nothing,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
