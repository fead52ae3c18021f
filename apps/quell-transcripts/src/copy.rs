//! The archive goes along when a store is copied. What only finds messages again (the index of words) is made anew there.

use quell::copy::{Application, Table};
use quell::quell_core::tables::Dialect;

use crate::archive::{APPLICATION, migrations};

/// What the application keeps.
pub struct Belongs;

static TABLES: [Table; 8] = [
    Table {
        name: "transcripts_session",
        columns: &[
            "id",
            "project",
            "cwd",
            "title",
            "title_rank",
            "status",
            "began_at",
            "last_at",
            "transcript",
            "prompt_id",
            "messages",
            "prompts",
            "input_tokens",
            "output_tokens",
            "cache_creation_tokens",
            "cache_read_tokens",
            "problem",
        ],
        key: 1,
        numbered: false,
    },
    Table {
        name: "transcripts_event",
        columns: &["id", "session_id", "name", "at", "prompt_id", "payload"],
        key: 1,
        numbered: false,
    },
    Table {
        name: "transcripts_prompt",
        columns: &["id", "session_id", "at", "text"],
        key: 1,
        numbered: false,
    },
    Table {
        name: "transcripts_file",
        columns: &["path", "session_id", "position", "version", "lines", "malformed", "unknown", "read_at"],
        key: 1,
        numbered: false,
    },
    Table {
        name: "transcripts_message",
        columns: &[
            "n",
            "uuid",
            "session_id",
            "parent",
            "role",
            "at",
            "prompt_id",
            "is_prompt",
            "sidechain",
            "meta",
            "agent_id",
            "api_id",
            "model",
            "text",
            "thinking",
            "tools",
            "results",
            "failures",
        ],
        key: 1,
        numbered: true,
    },
    Table {
        name: "transcripts_usage",
        columns: &[
            "session_id",
            "api_id",
            "input_tokens",
            "output_tokens",
            "cache_creation_tokens",
            "cache_read_tokens",
        ],
        key: 2,
        numbered: false,
    },
    Table {
        name: "transcripts_raw",
        columns: &["path", "at_byte", "session_id", "type", "line"],
        key: 2,
        numbered: false,
    },
    Table { name: "transcripts_forgotten", columns: &["session_id", "until"], key: 1, numbered: false },
];

impl Application for Belongs {
    fn name(&self) -> &'static str {
        APPLICATION
    }

    fn tables(&self) -> &'static [Table] {
        &TABLES
    }

    fn migrations(&self, dialect: Dialect) -> &'static [&'static str] {
        migrations(dialect)
    }
}
