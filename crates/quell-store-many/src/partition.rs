//! Which lane belongs to which partition: a pure function that must never change, because rows lie where it says.

use quell_core::event::{Key, LaneKey, Tenant};
use sha2::{Digest, Sha256};

use crate::limits::PARTITIONS;

/// The partition of a lane.
///
/// It is made of tenant and key, not of the queue: what a run tells about its end, and what it hands on under its own key, goes
/// to another queue of the same key and so stays in the same database and in the same transaction.
pub fn partition_of(lane: &LaneKey) -> usize {
    of_parts(&lane.tenant, &lane.key)
}

/// With the length of the tenant before it, so that no two pairs are written alike.
fn of_parts(tenant: &Tenant, key: &Key) -> usize {
    let mut hash = Sha256::new();
    hash.update((tenant.as_str().len() as u64).to_be_bytes());
    hash.update(tenant.as_str());
    hash.update((key.as_str().len() as u64).to_be_bytes());
    hash.update(key.as_str());
    within(&hash.finalize(), PARTITIONS)
}

/// Where to begin for a text, among so many.
pub(crate) fn of_text(text: &str, many: usize) -> usize {
    within(&Sha256::digest(text), many)
}

fn within(digest: &[u8], many: usize) -> usize {
    let number = digest.iter().take(8).fold(0u64, |number, byte| (number << 8) | u64::from(*byte));
    usize::try_from(number % many as u64).expect("a remainder is smaller than its divisor")
}

#[cfg(test)]
mod tests {
    use quell_core::event::QueueName;

    use super::*;

    fn lane(tenant: &str, queue: &str, key: &str) -> LaneKey {
        let lane = LaneKey::new(QueueName::new(queue).unwrap(), Key::new(key).unwrap());
        if tenant.is_empty() { lane } else { lane.of(Tenant::new(tenant).unwrap()) }
    }

    #[test]
    fn the_partition_of_a_lane_is_the_same_for_ever() {
        // Computed by another program (Python's hashlib); rows lie where these say.
        assert_eq!(partition_of(&lane("", "chat", "k1")), 87);
        assert_eq!(partition_of(&lane("acme", "chat", "customer 7")), 673);
    }

    #[test]
    fn queues_of_one_key_stay_together_and_names_never_run_into_one_another() {
        assert_eq!(partition_of(&lane("a", "chat", "k")), partition_of(&lane("a", "mail", "k")));
        assert_ne!(partition_of(&lane("a", "chat", "bc")), partition_of(&lane("ab", "chat", "c")));
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut counts = vec![0u32; PARTITIONS];
        for n in 0..100_000 {
            counts[partition_of(&lane("", "chat", &format!("customer-{n}")))] += 1;
        }
        // About 98 each; a binomial of that size stays within these bounds by far.
        assert!(counts.iter().all(|count| (40..180).contains(count)));
    }
}
