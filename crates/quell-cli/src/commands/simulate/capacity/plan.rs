//! The plan: how many databases, machines and handlers a load needs, by what each event and each run costs.
//!
//! First by arithmetic: nothing works for more than the allowed share of its time. Then the plan is simulated (`queue.rs`), and what is
//! too late gets more of what is busiest, until it is not. In the end it is simulated once more with a fifth more load. Everything is a
//! pure function of what is asked.

use quell_bench::Kind;
use quell_bench::costs::{Costs, SMALL};
pub(crate) use quell_store_many::limits::DATABASES_MAX;
use serde::Serialize;

use super::queue::{Load, simulate};

/// Requests of one simulation, about: percentiles are steady from there on, and it takes a fraction of a second.
const REQUESTS: usize = 200_000;
/// Bursts of one simulation at the most.
const BURSTS_MAX: usize = 1_000_000;
/// How often a plan is mended before it counts as one that cannot be.
const ROUNDS_MAX: usize = 60;
/// So many times the load that was asked for, on the same machines.
pub(crate) const MORE: f64 = 1.2;
const HOURS_PER_MONTH: f64 = 730.0;
const DAYS_PER_MONTH: f64 = 365.0 / 12.0;

/// What is asked.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ask {
    pub(crate) store: Kind,
    pub(crate) events_per_minute: f64,
    pub(crate) payload_bytes: f64,
    pub(crate) burst: u32,
    pub(crate) gap_s: f64,
    pub(crate) quiet_s: f64,
    pub(crate) handler_s: f64,
    /// The share of its time that a handler uses a core.
    pub(crate) handler_cpu: f64,
    /// Cores of each machine.
    pub(crate) cores: usize,
    /// Handlers that run at once in one process.
    pub(crate) concurrency: usize,
    /// The share of its time that anything may work.
    pub(crate) busy_max: f64,
    pub(crate) late_p99_max_ms: f64,
    pub(crate) retention_days: f64,
    /// What the disk of one database writes, and what the network of one machine carries.
    pub(crate) disk_megabytes_per_second: f64,
    pub(crate) network_gigabits: f64,
    /// Money; whatever the unit, the answer has the same.
    pub(crate) core_hour: f64,
    pub(crate) gigabyte_month: f64,
    pub(crate) seed: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Plan {
    /// One file, one server of PostgreSQL or one Redis each.
    pub(crate) databases: usize,
    /// Stores side by side, each with as many of the databases as one store may have.
    pub(crate) stores: usize,
    /// Machines for Quell beside them; with SQLite Quell is on the machine of its file.
    pub(crate) servers: usize,
    /// Processes that run handlers, and handlers at once in all of them.
    pub(crate) workers: usize,
    pub(crate) slots: usize,
    /// Cores that work all the time.
    pub(crate) database_cores: f64,
    pub(crate) quell_cores: f64,
    /// Shares of what is there.
    pub(crate) database_busy: f64,
    pub(crate) quell_busy: f64,
    pub(crate) slots_busy: f64,
    pub(crate) disk_busy: f64,
    pub(crate) network_busy: f64,
    /// Simulated: from the due time to the handler, and from an append to its answer.
    pub(crate) late_p50_ms: f64,
    pub(crate) late_p99_ms: f64,
    pub(crate) append_mean_ms: f64,
    pub(crate) append_p99_ms: f64,
    /// The same with a fifth more load on the same machines; nothing when it would grow without end.
    pub(crate) more_late_p99_ms: Option<f64>,
    pub(crate) runs_per_second: f64,
    pub(crate) log_megabytes_per_second: f64,
    pub(crate) network_megabytes_per_second: f64,
    pub(crate) gigabytes_per_day: f64,
    /// When the retention takes away as much as comes.
    pub(crate) gigabytes_kept: f64,
    pub(crate) machines_per_month: f64,
    pub(crate) disks_per_month: f64,
    /// Which part of the machines is the busiest, and the events a minute at which it would work all the time on these machines.
    pub(crate) limit: &'static str,
    pub(crate) limit_events_per_minute: f64,
    /// What one store of the most databases would take, at the allowed share of their time.
    pub(crate) most_events_per_minute: f64,
    /// False when the lateness that was asked for is not reached.
    pub(crate) reached: bool,
}

/// Microseconds of a core and bytes for one burst.
#[derive(Debug, Clone, Copy)]
struct Burst {
    quell_us: f64,
    append_us: f64,
    run_us: f64,
    log_bytes: f64,
    kept_bytes: f64,
    network_bytes: f64,
}

impl Burst {
    fn of(ask: &Ask, costs: &Costs) -> Self {
        let b = f64::from(ask.burst);
        // The costs were measured with small payloads; only what is larger counts here.
        let kilobytes = b * (ask.payload_bytes - SMALL as f64).max(0.0) / 1_000.0;
        let sum = |burst: f64, event: f64, kilobyte: f64| burst + b * event + kilobytes * kilobyte;
        let half = costs.store_kilobyte_us / 2.0;
        Burst {
            quell_us: sum(
                costs.quell_append_burst_us + costs.quell_run_burst_us,
                costs.quell_append_event_us + costs.quell_run_event_us,
                costs.quell_kilobyte_us,
            ),
            append_us: sum(costs.store_append_burst_us, costs.store_append_event_us, half),
            run_us: sum(costs.store_run_burst_us, costs.store_run_event_us, half),
            log_bytes: sum(costs.log_burst_bytes, costs.log_event_bytes, costs.log_kilobyte_bytes),
            kept_bytes: sum(costs.kept_burst_bytes, costs.kept_event_bytes, costs.kept_kilobyte_bytes),
            network_bytes: sum(
                costs.network_burst_bytes,
                costs.network_event_bytes,
                costs.network_kilobyte_bytes,
            ),
        }
    }

    fn store_us(self) -> f64 {
        self.append_us + self.run_us
    }
}

/// Whole ones, and at least one.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of machines")]
fn whole(amount: f64) -> usize {
    (amount - 1e-9).ceil().max(1.0) as usize
}

/// SQLite and Redis write one after the other; PostgreSQL on all of its cores.
fn serves_at_once(ask: &Ask) -> usize {
    match ask.store {
        Kind::Sqlite | Kind::Redis => 1,
        Kind::Postgres => ask.cores,
    }
}

/// What the whole load takes, in cores and in shares of one disk and of one network.
#[derive(Debug, Clone, Copy)]
struct Needs {
    bursts: f64,
    handlers: f64,
    quell_cores: f64,
    store_cores: f64,
    disks: f64,
    networks: f64,
}

impl Needs {
    fn of(ask: &Ask, burst: Burst) -> Self {
        let bursts = ask.events_per_minute / 60.0 / f64::from(ask.burst);
        let handlers = bursts * ask.handler_s;
        Needs {
            bursts,
            handlers,
            quell_cores: bursts * burst.quell_us / 1e6 + handlers * ask.handler_cpu,
            store_cores: bursts * burst.store_us() / 1e6,
            disks: bursts * burst.log_bytes / 1e6 / ask.disk_megabytes_per_second,
            networks: bursts * burst.network_bytes * 8.0 / 1e9 / ask.network_gigabits,
        }
    }

    /// As many that nothing of a database works for more than it may.
    fn databases(self, ask: &Ask) -> usize {
        let each = [self.store_cores / serves_at_once(ask) as f64, self.disks, self.networks];
        let with_quell =
            if ask.store == Kind::Sqlite { self.quell_cores / beside_the_writer(ask) } else { 0.0 };
        whole(each.into_iter().fold(with_quell, f64::max) / ask.busy_max)
    }
}

/// With SQLite the rest of the machine is for Quell.
fn beside_the_writer(ask: &Ask) -> f64 {
    (ask.cores.max(2) - 1) as f64
}

pub(crate) fn plan(ask: &Ask, costs: &Costs) -> Plan {
    let burst = Burst::of(ask, costs);
    let needs = Needs::of(ask, burst);
    let at_once = serves_at_once(ask);
    let mut databases = needs.databases(ask);
    let mut slots_each = whole(needs.handlers / ask.busy_max / databases as f64);
    let load = |databases: usize, slots: usize, times: f64| Load {
        bursts_per_second: times * needs.bursts / databases as f64,
        burst: ask.burst,
        gap_s: ask.gap_s,
        quiet_s: ask.quiet_s,
        append_s: burst.append_us / 1e6 / f64::from(ask.burst),
        claim_s: burst.run_us / 2e6,
        settle_s: burst.run_us / 2e6,
        flush_s: (costs.append_ms / 1e3 - (costs.store_append_burst_us + costs.store_append_event_us) / 1e6)
            .max(0.0),
        handler_s: ask.handler_s,
        cores: at_once,
        slots,
    };
    let watch = |load: Load| {
        let count = (REQUESTS / (ask.burst as usize + 2)).max(20 * load.slots).min(BURSTS_MAX);
        simulate(&load, count, ask.seed)
    };
    let mut round = 0;
    let seen = loop {
        let seen = watch(load(databases, slots_each, 1.0));
        if seen.late_p99_ms <= ask.late_p99_max_ms || round == ROUNDS_MAX {
            break seen;
        }
        round += 1;
        if seen.slots_busy >= seen.database_busy {
            slots_each += slots_each.div_ceil(10);
        } else {
            databases += databases.div_ceil(20);
        }
    };
    let servers = if ask.store == Kind::Sqlite {
        0
    } else {
        whole(needs.quell_cores / (ask.cores as f64 * ask.busy_max))
    };
    let slots = slots_each * databases;
    let each = databases as f64;
    let quell_there = match ask.store {
        Kind::Sqlite => each * beside_the_writer(ask),
        Kind::Postgres | Kind::Redis => (servers * ask.cores) as f64,
    };
    let database_busy = needs.store_cores / (each * at_once as f64);
    let (quell_busy, slots_busy) = (needs.quell_cores / quell_there, needs.handlers / slots as f64);
    let (disk_busy, network_busy) = (needs.disks / each, needs.networks / each);
    // Handlers at once are a setting and no machine, so they are nobody's next limit.
    let limits = [
        (database_busy, database_limit(ask.store)),
        (quell_busy, "the cores for Quell"),
        (disk_busy, "the disk of a database"),
        (network_busy, "the network of a database"),
    ];
    let (busiest, limit) =
        limits.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((database_busy, ""));
    let bounded = busiest.max(slots_busy) * MORE < 1.0;
    let alone = Needs::of(&Ask { events_per_minute: 60.0, ..ask.clone() }, burst);
    let of_one = [alone.store_cores / at_once as f64, alone.disks, alone.networks];
    let events_of_one = ask.busy_max / of_one.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    let gigabytes_per_day = needs.bursts * burst.kept_bytes * 86_400.0 / 1e9;
    let gigabytes_kept = gigabytes_per_day * ask.retention_days;
    Plan {
        databases,
        stores: databases.div_ceil(DATABASES_MAX),
        servers,
        workers: whole(slots as f64 / ask.concurrency as f64),
        slots,
        database_cores: needs.store_cores,
        quell_cores: needs.quell_cores,
        database_busy,
        quell_busy,
        slots_busy,
        disk_busy,
        network_busy,
        late_p50_ms: seen.late_p50_ms,
        late_p99_ms: seen.late_p99_ms,
        append_mean_ms: seen.append_mean_ms,
        append_p99_ms: seen.append_p99_ms,
        more_late_p99_ms: bounded.then(|| watch(load(databases, slots_each, MORE)).late_p99_ms),
        runs_per_second: needs.bursts,
        log_megabytes_per_second: needs.bursts * burst.log_bytes / 1e6,
        network_megabytes_per_second: needs.bursts * burst.network_bytes / 1e6,
        gigabytes_per_day,
        gigabytes_kept,
        machines_per_month: ((databases + servers) * ask.cores) as f64 * HOURS_PER_MONTH * ask.core_hour,
        disks_per_month: gigabytes_kept * ask.gigabyte_month,
        limit,
        limit_events_per_minute: ask.events_per_minute / busiest,
        most_events_per_minute: events_of_one * 60.0 * DATABASES_MAX as f64,
        reached: seen.late_p99_ms <= ask.late_p99_max_ms,
    }
}

/// A month of money for each million events.
pub(crate) fn per_million(ask: &Ask, plan: &Plan) -> f64 {
    let millions = ask.events_per_minute * 60.0 * 24.0 * DAYS_PER_MONTH / 1e6;
    (plan.machines_per_month + plan.disks_per_month) / millions
}

fn database_limit(store: Kind) -> &'static str {
    match store {
        Kind::Sqlite => "the thread that writes",
        Kind::Postgres => "the cores of PostgreSQL",
        Kind::Redis => "the thread of Redis",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(store: Kind, events_per_minute: f64) -> Ask {
        Ask {
            store,
            events_per_minute,
            payload_bytes: 1_000.0,
            burst: 5,
            gap_s: 0.2,
            quiet_s: 2.0,
            handler_s: 0.2,
            handler_cpu: 0.0,
            cores: 4,
            concurrency: 16,
            busy_max: 0.7,
            late_p99_max_ms: 250.0,
            retention_days: 7.0,
            disk_megabytes_per_second: 500.0,
            network_gigabits: 10.0,
            core_hour: 0.05,
            gigabyte_month: 0.1,
            seed: 1,
        }
    }

    fn costs(kind: Kind) -> Costs {
        Costs::committed(kind).unwrap()
    }

    /// Round numbers: a burst of five takes 1 ms of the store and half of that of Quell.
    fn round() -> Costs {
        Costs {
            quell_append_burst_us: 0.0,
            quell_append_event_us: 50.0,
            quell_run_burst_us: 250.0,
            quell_run_event_us: 0.0,
            quell_kilobyte_us: 0.0,
            store_append_burst_us: 0.0,
            store_append_event_us: 100.0,
            store_run_burst_us: 500.0,
            store_run_event_us: 0.0,
            store_kilobyte_us: 0.0,
            kept_burst_bytes: 0.0,
            kept_event_bytes: 1_000.0,
            kept_kilobyte_bytes: 0.0,
            log_burst_bytes: 0.0,
            log_event_bytes: 2_000.0,
            log_kilobyte_bytes: 0.0,
            network_burst_bytes: 0.0,
            network_event_bytes: 4_000.0,
            network_kilobyte_bytes: 0.0,
            append_ms: 0.1,
        }
    }

    #[test]
    fn round_costs_make_a_plan_that_can_be_reckoned_by_hand() {
        // 1,200 bursts a second: 1.2 cores of the store, 0.6 of Quell, 12 MB/s of log, 24 MB/s over the network.
        let plan = plan(&ask(Kind::Redis, 360_000.0), &round());
        assert_eq!((plan.databases, plan.servers), (2, 1), "{plan:?}");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(plan.database_busy, 0.6) && close(plan.quell_busy, 0.15), "{plan:?}");
        assert!(close(plan.disk_busy, 12.0 / 500.0 / 2.0), "{plan:?}");
        assert!(close(plan.network_busy, 24.0 * 8.0 / 10_000.0 / 2.0), "{plan:?}");
        assert!(close(plan.gigabytes_per_day, 6_000.0 * 1_000.0 * 86_400.0 / 1e9), "{plan:?}");
        assert!(
            close(plan.most_events_per_minute / 1e6, 0.7 * 5_000.0 * 60.0 * DATABASES_MAX as f64 / 1e6),
            "{plan:?}"
        );
        let slow_disk = Ask { disk_megabytes_per_second: 3.0, ..ask(Kind::Redis, 360_000.0) };
        let plan = super::plan(&slow_disk, &round());
        assert_eq!((plan.databases, plan.limit), (6, "the disk of a database"), "{plan:?}");
        assert!(close(plan.limit_events_per_minute, 360_000.0 * 1.5), "{plan:?}");
    }

    #[test]
    fn a_fifth_more_is_later_and_more_databases_than_a_store_may_have_are_several_stores() {
        let busy = plan(&ask(Kind::Redis, 210_000.0), &round());
        assert!(busy.more_late_p99_ms.unwrap() > busy.late_p99_ms, "{busy:?}");
        let too_busy = plan(&Ask { busy_max: 0.9, ..ask(Kind::Redis, 270_000.0) }, &round());
        assert_eq!(too_busy.more_late_p99_ms, None, "{too_busy:?}");
        assert_eq!(busy.stores, 1, "{busy:?}");
        let far = plan(&ask(Kind::Redis, 12e6), &round());
        assert_eq!((far.databases > DATABASES_MAX, far.stores, far.reached), (true, 2, true), "{far:?}");
    }

    #[test]
    fn twice_the_load_takes_twice_the_databases_and_money() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Redis] {
            let one = plan(&ask(kind, 100e6), &costs(kind));
            let two = plan(&ask(kind, 200e6), &costs(kind));
            let apart = two.databases as f64 / one.databases as f64;
            assert!((1.9..=2.1).contains(&apart), "{kind:?}: {} and {}", one.databases, two.databases);
            let money = two.machines_per_month / one.machines_per_month;
            assert!((1.9..=2.1).contains(&money), "{kind:?}: {money}");
            assert!((two.gigabytes_kept / one.gigabytes_kept - 2.0).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_works_longer_than_it_may_and_nothing_is_later_than_it_may_be() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Redis] {
            for load in [1_000.0, 1e6, 20e6] {
                let ask = ask(kind, load);
                let plan = plan(&ask, &costs(kind));
                for busy in [plan.database_busy, plan.quell_busy, plan.slots_busy, plan.disk_busy] {
                    assert!(busy <= ask.busy_max + 1e-9, "{kind:?} {load}: {plan:?}");
                }
                assert!(plan.reached && plan.late_p99_ms <= ask.late_p99_max_ms, "{kind:?} {load}: {plan:?}");
            }
        }
    }

    #[test]
    fn a_small_load_takes_one_of_each_and_slow_handlers_take_more_slots() {
        let plan = plan(&ask(Kind::Postgres, 600.0), &costs(Kind::Postgres));
        assert_eq!((plan.databases, plan.servers, plan.workers), (1, 1, 1), "{plan:?}");
        let slow = Ask { handler_s: 30.0, ..ask(Kind::Sqlite, 60_000.0) };
        // What is the limit must not depend on how fast the machine was on which costs were measured.
        let plan = super::plan(&slow, &round());
        assert_eq!(plan.limit, "the thread that writes", "{plan:?}");
        assert!(plan.slots >= 6_000, "200 runs a second for half a minute each: {plan:?}");
    }

    #[test]
    fn larger_bursts_cost_less_for_each_event() {
        for kind in [Kind::Sqlite, Kind::Postgres, Kind::Redis] {
            let single = plan(&Ask { burst: 1, ..ask(kind, 10e6) }, &costs(kind));
            let bursts = plan(&Ask { burst: 20, ..ask(kind, 10e6) }, &costs(kind));
            assert!(bursts.database_cores < single.database_cores, "{kind:?}: {bursts:?} and {single:?}");
        }
    }

    #[test]
    fn money_is_cores_and_gigabytes_at_the_prices_that_were_given() {
        let asked = ask(Kind::Redis, 1e6);
        let plan = plan(&asked, &costs(Kind::Redis));
        let cores = ((plan.databases + plan.servers) * 4) as f64;
        assert!((plan.machines_per_month - cores * 730.0 * 0.05).abs() < 1e-6);
        assert!((plan.disks_per_month - plan.gigabytes_kept * 0.1).abs() < 1e-6);
        let all = per_million(&asked, &plan) * 1e6 * 60.0 * 24.0 * DAYS_PER_MONTH / 1e6;
        assert!((all - plan.machines_per_month - plan.disks_per_month).abs() < 1e-6);
    }
}
