//! The book goes along when a store is copied.

use quell::copy::{Application, Table};
use quell::quell_core::tables::Dialect;

use super::{APPLICATION, MIGRATIONS};

/// What the application keeps.
pub struct Belongs;

static TABLES: [Table; 5] = [
    Table {
        name: "prices_intake",
        columns: &[
            "tenant",
            "id",
            "year",
            "mintmark",
            "denomination",
            "series",
            "title",
            "currency",
            "created_at",
        ],
        key: 2,
        numbered: false,
    },
    Table {
        name: "prices_collected",
        columns: &[
            "tenant",
            "intake",
            "source",
            "token",
            "run",
            "at",
            "found",
            "points_kept",
            "points_new",
            "points_replaced",
            "unmatched",
            "skipped",
            "pages",
            "cached",
        ],
        key: 3,
        numbered: false,
    },
    Table {
        name: "prices_point",
        columns: &[
            "tenant",
            "intake",
            "source",
            "dedupe_key",
            "external_id",
            "url",
            "title",
            "cents",
            "currency",
            "original_cents",
            "original_currency",
            "price_type",
            "dated_at",
            "match_strength",
            "first_seen_at",
            "last_seen_at",
            "first_run",
            "changed_run",
            "observations",
            "latest_cents",
            "latest_currency",
            "latest_at",
        ],
        key: 4,
        numbered: false,
    },
    Table {
        name: "prices_observation",
        columns: &["tenant", "intake", "source", "dedupe_key", "n", "at", "cents", "currency", "run"],
        key: 5,
        numbered: false,
    },
    Table {
        name: "prices_valuation",
        columns: &[
            "tenant",
            "intake",
            "currency",
            "cents",
            "low_cents",
            "high_cents",
            "points",
            "sold",
            "ask",
            "bid",
            "other_currency",
            "as_of",
            "run",
            "token",
        ],
        key: 2,
        numbered: false,
    },
];

impl Application for Belongs {
    fn name(&self) -> &'static str {
        APPLICATION
    }

    fn tables(&self) -> &'static [Table] {
        &TABLES
    }

    fn migrations(&self, _: Dialect) -> &'static [&'static str] {
        &MIGRATIONS
    }
}
