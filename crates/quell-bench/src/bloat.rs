//! Bloat: what many cycles on the same keys leave behind in PostgreSQL.
//!
//! Events, finished runs and audit records are kept on purpose until the retention removes them, so those tables grow.
//! The rows of the lanes do not become more; how much their table grows is what updates in place cost.

use std::time::Duration;

use crate::place::Fresh;
use crate::rounds::Rounds;
use crate::{Figure, Sizes, Watch};

/// A session tells the statistics at most once a second.
const STATISTICS: Duration = Duration::from_millis(1_500);

/// What the server says of one table.
struct Table {
    name: String,
    bytes: f64,
    dead: f64,
    updates: f64,
    hot: f64,
}

pub(crate) async fn run(fresh: &Fresh, sizes: &Sizes) -> anyhow::Result<Vec<Figure>> {
    let rounds = Rounds::open(fresh).await?;
    let client = fresh.postgres().await?;
    rounds.cycle(0..sizes.bloat_lanes).await?; // The rows of all lanes are there.
    let before = look(&client, &fresh.name).await?;
    let watch = Watch::start();
    for _ in 0..sizes.bloat_cycles {
        rounds.cycle(0..sizes.bloat_lanes).await?;
    }
    let rate = watch.rate(sizes.bloat_cycles * sizes.bloat_lanes);
    let after = look(&client, &fresh.name).await?;

    let (cycles, mb) = (sizes.bloat_cycles as f64, 1024.0 * 1024.0);
    let sum = |tables: &[Table], of: fn(&Table) -> f64| tables.iter().map(of).sum::<f64>();
    let mut figures = vec![
        Figure::new("bloat", "append, claim and settle on the same keys", rate, "lanes/s"),
        Figure::new("bloat", "all tables with their indexes, before", sum(&before, |t| t.bytes) / mb, "MB"),
        Figure::new("bloat", "all tables with their indexes, after", sum(&after, |t| t.bytes) / mb, "MB"),
        Figure::new("bloat", "dead rows before", sum(&before, |t| t.dead), ""),
        Figure::new("bloat", "dead rows after", sum(&after, |t| t.dead), ""),
    ];
    for table in &after {
        let was = before.iter().find(|t| t.name == table.name).map_or(0.0, |t| t.bytes);
        let grown = (table.bytes - was) / 1024.0 / cycles;
        if grown > 0.0 {
            let what = format!("{} grows per cycle of {} lanes", table.name, sizes.bloat_lanes);
            figures.push(Figure::new("bloat", what, grown, "KB"));
        }
        if table.updates > 0.0 {
            let what = format!("updates of {} that touch no index", table.name);
            figures.push(Figure::new("bloat", what, table.hot / table.updates * 100.0, "%"));
        }
    }
    Ok(figures)
}

async fn look(client: &tokio_postgres::Client, schema: &str) -> anyhow::Result<Vec<Table>> {
    quell::clock::sleep(STATISTICS).await;
    let sql = "SELECT relname::text, pg_total_relation_size(relid)::float8, n_dead_tup::float8, n_tup_upd::float8, \
               n_tup_hot_upd::float8 FROM pg_stat_user_tables WHERE schemaname = $1 ORDER BY relname";
    let rows = client.query(sql, &[&schema]).await?;
    let table = |row: &tokio_postgres::Row| Table {
        name: row.get(0),
        bytes: row.get(1),
        dead: row.get(2),
        updates: row.get(3),
        hot: row.get(4),
    };
    Ok(rows.iter().map(table).collect())
}
