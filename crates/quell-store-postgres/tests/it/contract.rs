//! The shared suite on a real server: every promise of the contract, kept by PostgreSQL.

use async_trait::async_trait;
use quell_store_tests::{Harness, World};

use crate::world::Schema;

struct Schemas;

#[async_trait]
impl Harness for Schemas {
    async fn world(&self) -> Box<dyn World> {
        let url = quell_test_servers::postgres_url();
        Box::new(Schema::fresh(&url, &url, "").await)
    }
}

quell_store_tests::store_suite!(Schemas);
