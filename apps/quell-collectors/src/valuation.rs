//! The debounced run that makes one value of all points of an intake, after its sources have been collected.
//!
//! The key of the lane is the intake. Collections of several sources within the window make one run; whatever the events say,
//! the value is made of what the book has at that moment, so a run that comes late or twice writes nothing wrong.

use async_trait::async_trait;
use quell::quell_core::error::StoreError;
use quell::{Handler, Outcome, Run};
use serde_json::json;

use crate::book::Book;
use crate::value::{ValueRules, value};

/// Handles the queue `collect.value`.
pub struct Values {
    pub book: Book,
    pub rules: ValueRules,
}

#[async_trait]
impl Handler for Values {
    async fn handle(&self, run: &Run) -> Outcome {
        self.valued(run)
            .await
            .unwrap_or_else(|error| Outcome::retry(format!("the book of prices did not answer: {error}")))
    }
}

impl Values {
    async fn valued(&self, run: &Run) -> Result<Outcome, StoreError> {
        let id = run.key().as_str();
        let Some(intake) = self.book.intake(run.tenant(), id).await? else {
            // Removed while its value was waiting to be made: nothing is wrong, and nothing is left to do.
            let result = json!({ "valued": false, "why": "there is no intake of this id (any more)" });
            return Ok(Outcome::succeeded().with_result(result));
        };
        let points = self.book.priced(&intake).await?;
        let made = value(&points, intake.currency, &self.rules, run.batch().claimed_at);
        let run_id = run.run_id().to_string();
        if !self.book.put_valuation(&intake, &made, &run_id, run.token()).await? {
            return Ok(Outcome::retry(
                "nothing was stored: another claim has valued this since, or the intake was removed",
            ));
        }
        // Bounded by what one value is made of, far below what a float counts exactly.
        let points = u32::try_from(made.counted.all()).map_or(f64::MAX, f64::from);
        Ok(Outcome::succeeded()
            .with_result(json!({ "valued": true, "value": made }))
            .with_usage("points", points))
    }
}
