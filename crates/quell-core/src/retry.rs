//! When to try again.
//!
//! delay = min(base × factor^r, cap), where r is the number of earlier `retry` outcomes of this run: crashes and
//! hand-backs do not count, so a rolling restart never lengthens a backoff. Jitter only shortens, so `cap` is a true
//! upper bound and `jitter = 0` gives the plain formula exactly. A handler's own `retry_after` wins over all of it.
//! When the attempts are used up the store buries the run instead (`lane.rs`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::mutants::mutant;

/// A queue's rule for trying again.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Before the second attempt.
    pub base: Duration,
    /// Each pause is so many times the one before.
    pub factor: f64,
    /// No pause is longer.
    pub cap: Duration,
    /// Claims that a run may use before it fails, counted at the claim.
    pub attempts: u32,
    /// The share by which chance may shorten a delay: 0 to 1.
    pub jitter: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            base: Duration::from_secs(60),
            factor: 2.0,
            cap: Duration::from_secs(24 * 3600),
            attempts: 10,
            jitter: 0.1,
        }
    }
}

/// Why a retry policy was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum RetryProblem {
    /// None at all, or more than there may be.
    #[error("attempts = {0} is not between 1 and 1000")]
    Attempts(u32),
    /// Below 1, or no number.
    #[error("factor = {0} is not between 1 and 100")]
    Factor(f64),
    /// Not between 0 and 1.
    #[error("jitter = {0} is not between 0 and 1")]
    Jitter(f64),
    /// The first pause would be longer than the longest.
    #[error("base {base:?} is longer than cap {cap:?}")]
    BaseAboveCap { base: Duration, cap: Duration },
    /// Without a pause, a failing handler would be called in a loop.
    #[error("base is 0, so a failing handler would be called without a pause; write at least \"1ms\"")]
    BaseIsZero,
}

impl RetryPolicy {
    /// Whether this can be followed.
    pub fn check(&self) -> Result<(), RetryProblem> {
        if self.attempts == 0 || self.attempts > limits::ATTEMPTS_MAX {
            return Err(RetryProblem::Attempts(self.attempts));
        }
        if !(1.0..=100.0).contains(&self.factor) {
            return Err(RetryProblem::Factor(self.factor));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(RetryProblem::Jitter(self.jitter));
        }
        if self.base.is_zero() {
            return Err(RetryProblem::BaseIsZero);
        }
        if self.base > self.cap {
            return Err(RetryProblem::BaseAboveCap { base: self.base, cap: self.cap });
        }
        Ok(())
    }

    /// The wait before the next try. `retries` are the earlier retry outcomes; `chance` is drawn from [0, 1).
    pub fn delay(&self, retries: u32, chance: f64) -> Duration {
        let exponent =
            if mutant("backoff_never_grows") { 0 } else { i32::try_from(retries).unwrap_or(i32::MAX) };
        let grown = self.base.as_secs_f64() * self.factor.powi(exponent);
        let capped = grown.min(self.cap.as_secs_f64());
        let shortened = capped * (1.0 - self.jitter * chance.clamp(0.0, 1.0));
        Duration::from_secs_f64(shortened.max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn without_jitter_the_older_formula_holds_exactly() {
        let policy = RetryPolicy { jitter: 0.0, ..RetryPolicy::default() };
        let minutes: Vec<u64> = (0..13).map(|r| policy.delay(r, 0.9).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1440, 1440]);
        assert_eq!(policy.delay(u32::MAX, 0.0), policy.cap);
    }

    #[test]
    fn impossible_policies_are_refused() {
        let good = RetryPolicy::default();
        assert_eq!(good.check(), Ok(()));
        assert!(RetryPolicy { attempts: 0, ..good }.check().is_err());
        assert!(RetryPolicy { factor: 0.5, ..good }.check().is_err());
        assert!(RetryPolicy { factor: f64::NAN, ..good }.check().is_err());
        assert!(RetryPolicy { jitter: 1.5, ..good }.check().is_err());
        assert!(RetryPolicy { base: Duration::ZERO, ..good }.check().is_err());
        assert!(RetryPolicy { base: Duration::from_secs(90_000), ..good }.check().is_err());
    }

    proptest! {
        #[test]
        fn jitter_only_shortens_and_never_below_its_share(retries in 0u32..40, chance in 0.0f64..1.0, jitter in 0.0f64..1.0) {
            let policy = RetryPolicy { jitter, ..RetryPolicy::default() };
            let plain = RetryPolicy { jitter: 0.0, ..policy }.delay(retries, 0.0);
            let drawn = policy.delay(retries, chance);
            prop_assert!(drawn <= plain);
            prop_assert!(drawn.as_secs_f64() >= plain.as_secs_f64() * (1.0 - jitter) - 1e-6);
        }
    }
}
