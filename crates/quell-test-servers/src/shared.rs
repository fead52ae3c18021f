//! The servers that one run shares: three variables that `cargo xtask test` sets and the stores' tests read.

/// Names the PostgreSQL of this run, with user, password and database.
pub const POSTGRES: &str = "QUELL_TEST_POSTGRES";
/// Names the Redis of this run.
pub const REDIS: &str = "QUELL_TEST_REDIS";
/// Names the PgBouncer in front of the PostgreSQL of this run.
pub const PGBOUNCER: &str = "QUELL_TEST_PGBOUNCER";

/// The PostgreSQL of this run.
///
/// # Panics
///
/// When there is none: a test that skips itself would look like one that passed.
#[must_use]
pub fn postgres_url() -> String {
    url(POSTGRES, "a PostgreSQL")
}

/// The Redis of this run.
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn redis_url() -> String {
    url(REDIS, "a Redis")
}

/// The PgBouncer of this run; its PostgreSQL is that of [`postgres_url`].
///
/// # Panics
///
/// When there is none.
#[must_use]
pub fn pgbouncer_url() -> String {
    url(PGBOUNCER, "a PgBouncer")
}

fn url(variable: &str, product: &str) -> String {
    match std::env::var(variable) {
        Ok(url) if !url.is_empty() => url,
        _ => panic!("{}", needed(product)),
    }
}

fn needed(product: &str) -> String {
    format!(
        "this test needs {product} server: run `cargo xtask test`, or `cargo xtask with-servers -- cargo test …`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_without_its_server_says_how_to_get_one() {
        let panic = std::panic::catch_unwind(|| url("QUELL_TEST_NOTHING", "a PostgreSQL")).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(
            text,
            "this test needs a PostgreSQL server: run `cargo xtask test`, or `cargo xtask with-servers -- cargo \
             test …`"
        );
    }
}
