//! One process under test: it does the work of its role and writes down what it asked and was told.
//!
//! Every question is a line before it is asked and every answer a line after it came, in a log of the child's own. A line is
//! one write, so that a kill leaves whole lines but for the last; nothing is flushed to the disk, because it is the process
//! that dies, or a disk beside this one, and not the machine.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quell_check::history::Record;
use quell_core::store::Store;

use crate::judge::{Broken, drain};
use crate::record::Recorded;
use crate::roles::{append_forever, operate_forever, work_forever};

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sends events.
    Append,
    /// Claims and handles.
    Work,
    /// Lays hands on lanes.
    Operate,
    /// Finishes everything that is left, and ends.
    Drain,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 4] = [Role::Append, Role::Work, Role::Operate, Role::Drain];

    /// The word for a command line and for the name of a log.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Append => "append",
            Role::Work => "work",
            Role::Operate => "operate",
            Role::Drain => "drain",
        }
    }

    /// The role of this word.
    pub fn of(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// Where a child of this role and number writes.
pub fn log_path(folder: &Path, role: &str, index: usize) -> PathBuf {
    folder.join(format!("{role}-{index}.jsonl"))
}

/// Does the work of one role: until it is killed, or until nothing is left.
///
/// Panics on an answer that the contract does not allow; the parent sees that the child ended by itself.
///
/// # Errors
///
/// Only [`Role::Drain`] has any: what is left and cannot be finished.
pub async fn child(role: Role, store: Arc<dyn Store>, log: &Path) -> Result<(), Broken> {
    let name = log.file_stem().expect("a log has a name").to_string_lossy().into_owned();
    let number = name.rsplit('-').next().and_then(|n| n.parse::<u64>().ok()).expect("a log has a number");
    let mut file = OpenOptions::new().create(true).append(true).open(log).expect("a log can be opened");
    // Number 0 is nobody.
    let recorded = Recorded::new(store, number + 1, Box::new(move |record| write_line(&mut file, &record)));
    match role {
        Role::Append => append_forever(&recorded, &name).await,
        Role::Work => work_forever(&recorded, &name).await,
        Role::Operate => operate_forever(&recorded, &name).await,
        Role::Drain => drain(&recorded, async || ()).await?,
    }
    Ok(())
}

/// One line in one write: it survives the death of its writer whole or not at all.
fn write_line(file: &mut File, record: &Record) {
    let mut line = serde_json::to_string(record).expect("a record is always JSON");
    line.push('\n');
    file.write_all(line.as_bytes()).expect("a line can be written");
}
