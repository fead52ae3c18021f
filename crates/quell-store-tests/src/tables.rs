//! Tables of applications: migrated once, written all or nothing, the same on every store that has them.
//!
//! A store without tables keeps these promises by having none to give, which [`World::has_tables`] must say, too.

use std::sync::Arc;

use quell_core::error::ErrorKind;
use quell_core::store::Store;
use quell_core::tables::{Cell, Row, Statement, Tables};
use tokio::task::JoinSet;

use crate::World;

const FIRST: &str =
    "CREATE TABLE quell.shop_coin (id bigint NOT NULL PRIMARY KEY, name text, sold bigint NOT NULL)";
const SECOND: &str =
    "ALTER TABLE quell.shop_coin ADD COLUMN year bigint; CREATE INDEX shop_year ON quell.shop_coin (year)";
const PUT: &str = "INSERT INTO quell.shop_coin (id, name, sold) VALUES ($1, $2, $3)";
const ALL: &str = "SELECT id, name, sold FROM quell.shop_coin ORDER BY id";

/// The tables of a store that must have some, with the application's own in place.
async fn shop(store: Arc<dyn Store>) -> Arc<dyn Tables> {
    let tables = store.tables().expect("this store has tables");
    tables.migrate("shop", &[FIRST]).await.expect("a migration of an empty database works");
    tables
}

fn coin(id: i64, name: &str) -> Vec<Cell> {
    vec![id.into(), name.into(), false.into()]
}

async fn all(tables: &dyn Tables) -> Vec<Row> {
    tables.read(Statement::new(ALL, [])).await.expect("a table can be read")
}

pub async fn a_store_has_tables_or_says_that_it_has_none(world: &dyn World) {
    assert_eq!(world.store().tables().is_some(), world.has_tables());
}

pub async fn rows_come_back_as_they_were_written(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    let odd = "Ω 'quoted' \"twice\" \\ \u{2028} 🪙";
    let rows = vec![
        vec![Cell::Int(i64::MAX), Cell::Null, Cell::Int(1)],
        vec![Cell::Int(i64::MIN), Cell::Text(odd.into()), Cell::Int(0)],
        coin(3, ""),
    ];
    let written = tables.write(vec![Statement::many(PUT, rows.clone())]).await.expect("the tables take it");
    assert_eq!(written, [3]);
    assert_eq!(all(&*tables).await, [Row(rows[1].clone()), Row(rows[2].clone()), Row(rows[0].clone())]);
    let by_name = Statement::new(
        "SELECT id FROM quell.shop_coin WHERE name = $1 AND sold = $2",
        [odd.into(), 0.into()],
    );
    assert_eq!(tables.read(by_name).await.expect("the tables take it"), [Row(vec![Cell::Int(i64::MIN)])]);
}

pub async fn what_was_written_survives_a_restart(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    tables.write(vec![Statement::new(PUT, coin(1, "a"))]).await.expect("the tables take it");
    drop(tables);
    let tables = shop(world.reopen().await).await;
    assert_eq!(all(&*tables).await, [Row(coin(1, "a"))]);
}

pub async fn a_write_is_stored_whole_or_not_at_all(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    tables.write(vec![Statement::new(PUT, coin(1, "a"))]).await.expect("the tables take it");
    let twice = vec![Statement::new(PUT, coin(2, "b")), Statement::new(PUT, coin(1, "again"))];
    assert_eq!(tables.write(twice).await.expect_err("it is refused").kind, ErrorKind::Invalid);
    let wrong = vec![Statement::new(PUT, coin(2, "b")), Statement::new("SELEKT nothing", [])];
    assert_eq!(tables.write(wrong).await.expect_err("it is refused").kind, ErrorKind::Invalid);
    let sell = "UPDATE quell.shop_coin SET sold = 1 WHERE id = $1 AND sold = 0";
    let missed = vec![Statement::new(PUT, coin(3, "c")), Statement::new(sell, [9.into()]).changing(1)];
    assert_eq!(tables.write(missed).await.expect_err("it is refused").kind, ErrorKind::Conflict);
    assert_eq!(all(&*tables).await, [Row(coin(1, "a"))], "nothing of a write that failed is there");
    let met = vec![Statement::new(PUT, coin(3, "c")), Statement::new(sell, [1.into()]).changing(1)];
    assert_eq!(tables.write(met).await.expect("the tables take it"), [1, 1]);
}

pub async fn of_many_who_change_a_row_on_a_condition_exactly_one_does(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    tables.write(vec![Statement::new(PUT, coin(1, "a"))]).await.expect("the tables take it");
    let other = world.another().await.tables().expect("the same store");
    let mut buyers = JoinSet::new();
    for buyer in 0..8 {
        let tables = if buyer % 2 == 0 { tables.clone() } else { other.clone() };
        buyers.spawn(async move {
            let sell = "UPDATE quell.shop_coin SET sold = 1, name = $1 WHERE id = 1 AND sold = 0";
            let name = format!("buyer {buyer}");
            tables.write(vec![Statement::new(sell, [name.into()]).changing(1)]).await
        });
    }
    let answers = buyers.join_all().await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
}

pub async fn migrations_are_applied_once_in_order_and_by_one_at_a_time(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    let other = world.another().await.tables().expect("the same store");
    let mut processes = JoinSet::new();
    for nth in 0..6 {
        let tables = if nth % 2 == 0 { tables.clone() } else { other.clone() };
        processes.spawn(async move { tables.migrate("shop", &[FIRST, SECOND]).await });
    }
    for answer in processes.join_all().await {
        answer.expect("whoever comes second finds the work done");
    }
    let sql = "INSERT INTO quell.shop_coin (id, sold, year) VALUES ($1, $2, $3)";
    tables
        .write(vec![Statement::new(sql, [1.into(), 0.into(), Cell::Null])])
        .await
        .expect("the tables take it");
    // Another application has versions of its own.
    tables.migrate("bank", &["CREATE TABLE quell.bank_note (id bigint)"]).await.expect("the tables take it");
}

pub async fn tables_of_a_newer_application_are_left_alone(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    tables.migrate("shop", &[FIRST, SECOND]).await.expect("the tables take it");
    let refused = tables.migrate("shop", &[FIRST]).await.expect_err("it is refused");
    assert_eq!(refused.kind, ErrorKind::Corrupt);
    assert!(refused.detail.contains("start a newer Quell"), "{refused}");
}

pub async fn a_migration_that_fails_leaves_nothing(world: &dyn World) {
    if !world.has_tables() {
        return;
    }
    let tables = shop(world.store()).await;
    let broken = "CREATE TABLE quell.shop_half (id bigint); CREATE TABLE quell.shop_coin (id bigint)";
    assert!(tables.migrate("shop", &[FIRST, broken]).await.is_err());
    tables
        .migrate("shop", &[FIRST, "CREATE TABLE quell.shop_half (id bigint)"])
        .await
        .expect("it was not made");
}
