//! What a history says of sources: outside parties with limits of their own.

use serde::{Deserialize, Serialize};

use super::{Millis, Name};

/// Whose limits an event waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Governed {
    /// The recorder does not say: nothing is checked about it.
    #[default]
    Untold,
    Nobody,
    /// The name of the source, with its tenant and a colon before it where each tenant has its own.
    By(Name),
}

impl Governed {
    pub fn is_untold(&self) -> bool {
        *self == Governed::Untold
    }
}

/// What is declared of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRules {
    /// Missing when there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u64>,
    pub burst: u64,
    /// Faults in a row that open the breaker.
    pub failures: u32,
    pub cooldown_ms: Millis,
}

/// What the end of an attempt says of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceReport {
    /// It answered.
    #[default]
    Fine,
    Fault {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<Millis>,
    },
    /// No request was made: the token goes back.
    Unused,
    /// Every request was reported by itself.
    Reported,
    /// No further token came, everything else was reported by itself.
    Starved,
}

impl SourceReport {
    pub(super) fn is_usual(&self) -> bool {
        *self == SourceReport::Fine
    }
}

/// What a holder asks of its run's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceAsk {
    /// One more token; the first one came with the claim.
    Take,
    /// What one request has shown: that it answered, or a fault.
    Report(SourceReport),
    Recall {
        key: Name,
    },
    Keep {
        key: Name,
    },
    Forget {
        key: Name,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceAnswer {
    Taken,
    /// Not before then.
    Wait {
        until: Millis,
    },
    Noted,
    /// A kept answer.
    Hit,
    /// Fetch it; nobody else does until then, if the moment is told.
    Fetch {
        until: Option<Millis>,
    },
    /// Somebody else is fetching it.
    Fetching {
        until: Millis,
    },
}
