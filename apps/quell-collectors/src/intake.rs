//! An intake: a thing whose price is wanted, and the key of its lane at a source.

use quell::quell_core::clock::Timestamp;
use quell::quell_core::event::{SourceName, Tenant};
use serde::{Deserialize, Serialize};

use crate::money::Currency;

/// A thing whose price is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    pub tenant: Tenant,
    /// `[A-Za-z0-9._-]{1,64}`, so that it can stand in a key.
    pub id: String,
    #[serde(flatten)]
    pub about: About,
    /// What it is valued in.
    pub currency: Currency,
    pub created_at: Timestamp,
}

/// What is known of a thing. All of it may be missing but the title or the series: something must be searched for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct About {
    pub year: Option<String>,
    pub mintmark: Option<String>,
    pub denomination: Option<String>,
    pub series: Option<String>,
    pub title: Option<String>,
}

impl Intake {
    /// The lane in which this intake is collected from a source: neither part can have a colon.
    pub fn lane(&self, source: &SourceName) -> String {
        format!("{}:{source}", self.id)
    }
}
