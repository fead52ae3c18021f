//! Picks the records that belong to a violation and writes them as lines.
//!
//! This runs once per broken history, so it may be slow and simple: a record belongs to a violation when its text
//! mentions the run, the token, the number or the id (or, failing all of these, the lane).

use serde_json::Value;

use crate::history::{Name, Op, Phase, Record};

/// How many lines a report may have; the rest is counted.
const LINES_MAX: usize = 60;

pub(crate) struct About<'a> {
    pub(crate) lane: Option<&'a Name>,
    pub(crate) run: Option<u64>,
    pub(crate) seq: Option<u64>,
    pub(crate) token: Option<u64>,
    pub(crate) id: Option<&'a Name>,
}

impl About<'_> {
    fn is_precise(&self) -> bool {
        self.run.is_some() || self.seq.is_some() || self.token.is_some() || self.id.is_some()
    }

    fn concerns(&self, value: &Value) -> bool {
        let number = |v: &Value, wanted: Option<u64>| wanted.is_some() && v.as_u64() == wanted;
        match value {
            Value::Object(fields) => fields.iter().any(|(name, v)| {
                let hit = match name.as_str() {
                    "run" | "other_run" => number(v, self.run),
                    "token" => number(v, self.token),
                    "seq" | "was_seq" => number(v, self.seq),
                    "seqs" => v.as_array().is_some_and(|all| all.iter().any(|v| number(v, self.seq))),
                    "id" => self.id.is_some_and(|id| v.as_str() == Some(id)),
                    "lane" => !self.is_precise() && self.lane.is_some_and(|lane| v.as_str() == Some(lane)),
                    _ => false,
                };
                hit || self.concerns(v)
            }),
            Value::Array(all) => all.iter().any(|v| self.concerns(v)),
            _ => false,
        }
    }
}

pub(crate) fn involved(records: &[Record], about: &About<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut asked: Vec<(u64, u64)> = Vec::new();
    for (place, record) in records.iter().enumerate() {
        let Ok(value) = serde_json::to_value(record) else { continue };
        if matches!(record.op, Some(Op::Dump(_))) {
            continue;
        }
        // The answer to a question that matters matters, too, though it may not repeat the numbers.
        let answers = record.phase != Phase::Invoke && asked.contains(&(record.process, record.call));
        let fact = record.op.as_ref().is_some_and(Op::is_fact);
        if about.concerns(&value) || (answers && !fact) {
            if record.phase == Phase::Invoke {
                asked.push((record.process, record.call));
            }
            lines.push(format!("#{place} {value}"));
        }
    }
    let dump = records.iter().rev().find_map(|r| match &r.op {
        Some(Op::Dump(dump)) => Some(dump),
        _ => None,
    });
    if let Some(dump) = dump {
        let mut add = |what: &str, value: serde_json::Result<Value>| {
            if let Ok(value) = value
                && about.concerns(&value)
            {
                lines.push(format!("{what} {value}"));
            }
        };
        dump.audit.iter().for_each(|a| add("audit", serde_json::to_value(a)));
        dump.events.iter().for_each(|e| add("dumped event", serde_json::to_value(e)));
        dump.runs.iter().for_each(|r| add("dumped run", serde_json::to_value(r)));
    }
    if lines.len() > LINES_MAX {
        let more = lines.len() - LINES_MAX;
        lines.drain(..more);
        lines.insert(0, format!("({more} earlier records left out)"));
    }
    lines
}
