//! What a handler receives: the batch with its envelope, and the ids that name runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::event::{Event, Invalid, LaneKey};
use crate::source::SourceId;
use crate::window::FiredBy;

/// The name of a run, known from its first event on.
///
/// It holds the number of its lane, so a store finds a run through its lane without an index over runs, and a number
/// of its own from the store-wide sequence, so no id is ever used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId {
    /// The number of its lane in the store.
    pub lane: u64,
    /// Its number in the lane; it grows.
    pub number: u64,
}

impl RunId {
    /// Whether a store can have made it: its numbers stay below 2^53.
    pub fn is_plausible(self) -> bool {
        self.lane < crate::limits::NUMBER_MAX && self.number < crate::limits::NUMBER_MAX
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("run_{}_{}", base32(self.lane), base32(self.number)))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for RunId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts = text.strip_prefix("run_").and_then(|rest| rest.split_once('_'));
        parts
            .and_then(|(lane, number)| Some(RunId { lane: unbase32(lane)?, number: unbase32(number)? }))
            .ok_or_else(|| Invalid {
                what: "run id",
                problem: format!("{text:?} does not look like run_2k_9f"),
            })
    }
}

impl Serialize for RunId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.lane, self.number).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return <(u64, u64)>::deserialize(deserializer).map(|(lane, number)| RunId { lane, number });
        }
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Crockford's alphabet in lower case: no letters that are mistaken for digits.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// A number as short text. Hand-written: thirty lines against a dependency for one format of ours.
pub fn base32(mut n: u64) -> String {
    let mut digits = Vec::with_capacity(13);
    loop {
        let digit = usize::try_from(n % 32).unwrap_or(0);
        digits.push(ALPHABET[digit]);
        n /= 32;
        if n == 0 {
            break;
        }
    }
    digits.iter().rev().map(|&b| char::from(b)).collect()
}

fn unbase32(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(0u64, |n, b| {
        let digit = ALPHABET.iter().position(|&a| a == b)?;
        n.checked_mul(32)?.checked_add(u64::try_from(digit).ok()?)
    })
}

/// Who claims: a name for people, and an identity that is new at every start.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WorkerId {
    /// `WORKER_ID` or the host name.
    pub name: String,
    /// Its process id, on its own machine.
    pub pid: u32,
    /// Drawn at start, so that two workers of one name, or one restarted with the same pid, never share a lease.
    pub start: String,
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.pid, self.start)
    }
}

impl FromStr for WorkerId {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut parts = text.rsplitn(3, ':');
        let (start, pid, name) = (parts.next(), parts.next().and_then(|p| p.parse().ok()), parts.next());
        match (name, pid, start) {
            (Some(name), Some(pid), Some(start)) => {
                Ok(WorkerId { name: name.into(), pid, start: start.into() })
            }
            _ => Err(Invalid { what: "worker", problem: format!("{text:?} is not name:pid:start") }),
        }
    }
}

/// The envelope: one batch under one lease. All events of the run, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Batch {
    /// Which run this is an attempt of.
    pub run_id: RunId,
    /// Whose events these are.
    #[serde(flatten)]
    pub lane: LaneKey,
    /// 1 for the first claim; crashes count, refunded hand-backs do not.
    pub attempt: u32,
    /// Claims that this run may use; when `attempt` equals it, this is the last one.
    pub max_attempts: u32,
    /// Earlier retry outcomes of this run: the exponent of its backoff.
    pub retries: u32,
    /// Larger for every later claim of the lane; what an older holder says changes nothing.
    pub token: u64,
    /// Raised by every merge with newer events; steps are remembered under it.
    pub revision: u32,
    /// Why it was handed over now.
    pub fired_by: FiredBy,
    /// When its first event was received.
    pub first_at: Timestamp,
    /// When its last event was received.
    pub last_at: Timestamp,
    /// When this attempt was claimed.
    pub claimed_at: Timestamp,
    /// Until when the lane is its holder's, unless the lease is extended.
    pub lease_until: Timestamp,
    /// The newest event of the lane at the claim; larger than the last event's `seq` when some were left over.
    pub head_seq: u64,
    /// The governed party that this run asks; its claim has taken one token.
    #[serde(skip)]
    pub source: Option<SourceId>,
    /// In order; at least one.
    pub events: Vec<Event>,
}

impl Batch {
    /// The number of the first event.
    pub fn lo(&self) -> u64 {
        self.events.first().map_or(0, |e| e.seq)
    }

    /// The number of the last event.
    pub fn hi(&self) -> u64 {
        self.events.last().map_or(0, |e| e.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_survive_being_written_down() {
        for (lane, number) in [(1, 2), (0, 0), (u64::MAX, 1 << 53), (31, 32)] {
            let id = RunId { lane, number };
            assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        }
        assert_eq!(RunId { lane: 84, number: 303 }.to_string(), "run_2m_9f");
        for bad in ["", "run_", "run_1", "run_1_", "run__1", "run_u_1", "evt_1_1", "run_1_zzzzzzzzzzzzzzz"] {
            assert!(bad.parse::<RunId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn worker_ids_survive_names_with_colons() {
        let id = WorkerId { name: "host:eu".into(), pid: 7, start: "k3".into() };
        assert_eq!(id.to_string().parse::<WorkerId>(), Ok(id));
        assert!("nonsense".parse::<WorkerId>().is_err());
    }
}
