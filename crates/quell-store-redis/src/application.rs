//! Data of applications: scripts of theirs, under a prefix of theirs, called as the store's own are.
//!
//! A script is called by its hash. A server that does not know it may have been restarted, so it is opened first
//! (`link.rs`) and told the script then, whichever of the two was the reason.

use std::sync::Arc;

use async_trait::async_trait;
use quell_core::error::{ErrorKind, StoreError, StoreResult};
use quell_core::keys::{Keys, check_names};
use quell_core::tables::Cell;
use redis::{Cmd, Value};

use crate::RedisStore;
use crate::error::strange;
use crate::link::{Call, For, Foreign, Link};
use crate::script::{APPLICATION_READS, APPLICATION_RUNS};

/// How a script of an application is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Runs,
    /// The same on a sealed store: it is for a copy.
    PastSeal,
    Reads,
}

/// The whole text: what the application wrote is the body of a function.
fn whole(way: Way, script: &str) -> String {
    let front = match way {
        Way::Runs => APPLICATION_RUNS,
        Way::PastSeal | Way::Reads => APPLICATION_READS,
    };
    format!("{front}{script}\nend\nreturn application(own, values)\n")
}

fn call(link: &Link, way: Way, text: &str, front: &str, names: &[&str], values: &[Cell]) -> Cmd {
    let mut call = redis::cmd(match way {
        Way::Runs | Way::PastSeal => "EVALSHA",
        Way::Reads => "EVALSHA_RO",
    });
    call.arg(redis::Script::new(text).get_hash()).arg(names.len() + 1).arg(link.keys.meta());
    for name in names {
        call.arg(format!("{front}{name}"));
    }
    let letter = |value: &Cell| if *value == Cell::Null { 'n' } else { 'v' };
    call.arg(front).arg(values.iter().map(letter).collect::<String>());
    for value in values {
        match value {
            Cell::Null => call.arg(""),
            Cell::Int(number) => call.arg(*number),
            Cell::Text(text) => call.arg(text.as_str()),
        };
    }
    call
}

fn cell(application: &str, value: Value) -> StoreResult<Cell> {
    let wrong = |what: &str| {
        let text = format!(
            "a script of {application} answered with {what}; it may answer with numbers, texts and nothing"
        );
        Err(StoreError::new(ErrorKind::Invalid, text))
    };
    match value {
        Value::Nil => Ok(Cell::Null),
        Value::Int(number) => Ok(Cell::Int(number)),
        Value::SimpleString(text) => Ok(Cell::Text(text)),
        Value::Okay => Ok(Cell::Text("OK".to_owned())),
        Value::BulkString(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Cell::Text(text)),
            Err(_) => wrong("bytes that are no text"),
        },
        Value::Array(_) | Value::Map(_) | Value::Set(_) => wrong("a list in a list"),
        _ => wrong("something else"),
    }
}

fn cells(application: &str, answer: Value) -> StoreResult<Vec<Cell>> {
    match answer {
        Value::Nil => Ok(Vec::new()),
        Value::Array(values) => values.into_iter().map(|value| cell(application, value)).collect(),
        _ => Err(strange("a script of an application that answered with one value in place of a list")),
    }
}

impl RedisStore {
    async fn run_script(
        &self,
        way: Way,
        application: &str,
        script: &str,
        names: &[&str],
        values: &[Cell],
    ) -> StoreResult<Vec<Cell>> {
        check_names(application, names)?;
        let link = &self.backend.shared.link;
        let text = whole(way, script);
        let call = call(link, way, &text, &link.keys.application(application), names, values);
        let (line, kind) = match way {
            Way::Runs | Way::PastSeal => (For::Transactions, Call::Ends),
            Way::Reads => (For::Reads, Call::Harmless),
        };
        let answer = link.run(line, &call, kind, Foreign { application, text: &text }).await?;
        cells(application, answer)
    }
}

#[async_trait]
impl Keys for RedisStore {
    async fn run(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>> {
        self.run_script(Way::Runs, application, script, names, &values).await
    }

    async fn read(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>> {
        self.run_script(Way::Reads, application, script, names, &values).await
    }
}

/// The same data for a copy, which works on sealed stores.
pub(crate) struct PastSeal(pub(crate) Arc<RedisStore>);

#[async_trait]
impl Keys for PastSeal {
    async fn run(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>> {
        self.0.run_script(Way::PastSeal, application, script, names, &values).await
    }

    async fn read(
        &self,
        application: &'static str,
        script: &'static str,
        names: &[&str],
        values: Vec<Cell>,
    ) -> StoreResult<Vec<Cell>> {
        Keys::read(&*self.0, application, script, names, values).await
    }
}
