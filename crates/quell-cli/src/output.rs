//! Where answers go: stdout for data, as aligned tables for people or JSON for programs.
//!
//! Colour is written always and removed here when stdout is no terminal or NO_COLOR is set. A reader that closes the
//! pipe ends the command in silence: every write returns its error, and `failure.rs` knows that one.

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};
use owo_colors::OwoColorize;
use quell::quell_core::event::Event;
use quell::quell_core::inspect::Page;
use quell::quell_core::lifecycle::RunState;
use serde::Serialize;

/// Writes one line of text.
pub(crate) fn line(text: impl AsRef<str>) -> io::Result<()> {
    writeln!(anstream::stdout().lock(), "{}", text.as_ref())
}

/// Writes a text as it is.
pub(crate) fn text(text: impl AsRef<str>) -> io::Result<()> {
    write!(anstream::stdout().lock(), "{}", text.as_ref())
}

/// Writes one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_string(value).map_err(io::Error::other)?;
    text.push('\n');
    io::stdout().lock().write_all(text.as_bytes())
}

/// Says something about the answer, on stderr. Nobody listening is fine.
pub(crate) fn say(text: impl AsRef<str>) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.as_ref());
}

/// What a page of a listing says below the table.
pub(crate) fn page_end<T>(page: &Page<T>, what: &str) {
    if page.items.is_empty() && page.next.is_none() {
        say(format!("no {what}"));
    }
    if let Some(next) = &page.next {
        say(format!("more: --cursor {}", quoted(next)));
    }
}

/// A table without borders.
pub(crate) struct Columns {
    table: Table,
    rows: usize,
}

impl Columns {
    pub(crate) fn new(names: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        // A narrow terminal gets long lines, not columns chopped into pieces; a pipe gets one line per row anyway.
        table.set_content_arrangement(ContentArrangement::Disabled);
        // Colour is always written; `anstream` removes it where it is not wanted.
        table.enforce_styling().style_text_only();
        table.set_header(names.iter().map(|name| Cell::new(name).add_attribute(Attribute::Dim)));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Columns { table, rows: 0 }
    }

    /// The column at this place holds numbers.
    #[must_use]
    pub(crate) fn right(mut self, column: usize) -> Self {
        if let Some(column) = self.table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        self
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.table.add_row(cells);
        self.rows += 1;
    }

    /// Writes the table, or nothing when it has no rows.
    pub(crate) fn write(self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut out = anstream::stdout().lock();
        // Each line separately, because the last column is padded too.
        for line in self.table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Name and value under one another, for details.
#[derive(Default)]
pub(crate) struct Facts(Vec<(String, String)>);

impl Facts {
    pub(crate) fn add(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    pub(crate) fn add_some(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    pub(crate) fn write(&self) -> io::Result<()> {
        let width = self.0.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut out = anstream::stdout().lock();
        for (name, value) in &self.0 {
            let pad = " ".repeat(width - name.chars().count());
            writeln!(out, "  {}{pad}  {value}", name.dimmed())?;
        }
        Ok(())
    }
}

/// A state in the colour of its meaning.
pub(crate) fn state(state: Option<RunState>) -> Cell {
    let Some(state) = state else { return Cell::new("idle").add_attribute(Attribute::Dim) };
    let cell = Cell::new(state.as_str());
    match state {
        RunState::Pending => cell,
        RunState::Running => cell.fg(Color::Cyan),
        RunState::Retryable => cell.fg(Color::Yellow),
        RunState::Succeeded => cell.fg(Color::Green),
        RunState::Failed => cell.fg(Color::Red),
        RunState::Cancelled => cell.add_attribute(Attribute::Dim),
    }
}

pub(crate) fn cell(value: impl ToString) -> Cell {
    Cell::new(value)
}

pub(crate) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A worker's identity without its start number, which only tells two of one name apart.
pub(crate) fn worker(identity: Option<&str>) -> String {
    match identity.map(str::parse::<quell::quell_core::batch::WorkerId>) {
        Some(Ok(id)) => format!("{}:{}", id.name, id.pid),
        Some(Err(_)) => identity.unwrap_or("-").to_owned(),
        None => "-".to_owned(),
    }
}

/// A word as a POSIX shell takes it unchanged.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An object as JSON with one field replaced.
pub(crate) fn with_field(
    object: &impl Serialize,
    field: &str,
    value: impl Into<serde_json::Value>,
) -> io::Result<serde_json::Value> {
    let mut object = serde_json::to_value(object).map_err(io::Error::other)?;
    object[field] = value.into();
    Ok(object)
}

/// What is shown of events when payloads are not wanted: everything else, and how large they are.
pub(crate) fn without_payloads(events: &[Event]) -> Vec<serde_json::Value> {
    let shown = |event: &Event| {
        serde_json::json!({
            "seq": event.seq,
            "id": event.id,
            "received_at": event.received_at,
            "payload_bytes": event.payload.len(),
            "headers": event.headers,
        })
    };
    events.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell_only_when_they_must_be() {
        assert_eq!(quoted("f.17"), "f.17");
        assert_eq!(quoted("1.a b"), "'1.a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_worker_is_shown_by_name_and_pid() {
        assert_eq!(worker(Some("host:42:k3j2")), "host:42");
        assert_eq!(worker(Some("odd")), "odd");
        assert_eq!(worker(None), "-");
    }
}
