//! The systems that are compared: what runs each, on which store, which shapes it has, and why not the others.

/// The servers and disks of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Store {
    Sqlite,
    Postgres,
    RedisAlways,
    RedisEverysec,
    /// The system is its own store.
    Own,
}

impl Store {
    pub const ALL: [Self; 5] =
        [Self::Sqlite, Self::Postgres, Self::RedisAlways, Self::RedisEverysec, Self::Own];

    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::RedisAlways => "Redis, `appendfsync always`",
            Self::RedisEverysec => "Redis, `appendfsync everysec`",
            Self::Own => "Servers with a store of their own",
        }
    }

    /// The system that others on this store are compared with. Servers with a store of their own run on one machine with one file,
    /// as Quell does with SQLite.
    #[must_use]
    pub fn quell(self) -> &'static str {
        match self {
            Self::Sqlite | Self::Own => "quell-sqlite",
            Self::Postgres => "quell-postgres",
            Self::RedisAlways => "quell-redis-always",
            Self::RedisEverysec => "quell-redis-everysec",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Jobs,
    Keyed,
    Burst,
}

impl Shape {
    pub const ALL: [Self; 3] = [Self::Jobs, Self::Keyed, Self::Burst];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Keyed => "keyed",
            Self::Burst => "burst",
        }
    }
}

/// What is started for a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// This program, with Quell in it.
    Quell,
    /// This program, with the client in it; the server flushes after this many milliseconds at most.
    Beanstalkd {
        flush_ms: u32,
    },
    Node(&'static str),
    Python(&'static str),
    Apalis,
}

/// One row of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// For the command line.
    pub id: &'static str,
    pub title: &'static str,
    pub store: Store,
    pub driver: Driver,
    /// The argument of the driver for each shape, or why there is none.
    pub jobs: Result<&'static str, &'static str>,
    pub keyed: Result<&'static str, &'static str>,
    pub burst: Result<&'static str, &'static str>,
}

impl System {
    /// The argument of the driver, or why the system has no such shape.
    pub fn shape(&self, shape: Shape) -> Result<&'static str, &'static str> {
        match shape {
            Shape::Jobs => self.jobs,
            Shape::Keyed => self.keyed,
            Shape::Burst => self.burst,
        }
    }

    #[must_use]
    pub fn is_quell(&self) -> bool {
        self.driver == Driver::Quell
    }
}

const NO_ORDER: &str = "no order per key";
const NO_DEBOUNCE: &str = "no debounce";

const fn quell(id: &'static str, store: Store) -> System {
    System {
        id,
        title: "**Quell**",
        store,
        driver: Driver::Quell,
        jobs: Ok("jobs"),
        keyed: Ok("keyed"),
        burst: Ok("burst"),
    }
}

const fn jobs_only(id: &'static str, title: &'static str, store: Store, driver: Driver) -> System {
    System { id, title, store, driver, jobs: Ok("jobs"), keyed: Err(NO_ORDER), burst: Err(NO_DEBOUNCE) }
}

const fn bullmq(id: &'static str, store: Store) -> System {
    System {
        id,
        title: "BullMQ",
        store,
        driver: Driver::Node("bullmq.mjs"),
        jobs: Ok("jobs"),
        keyed: Err("groups are in its commercial edition"),
        burst: Ok("burst"),
    }
}

/// In the order of the page; Quell first on each store.
pub const SYSTEMS: [System; 16] = [
    quell("quell-sqlite", Store::Sqlite),
    jobs_only("huey", "huey", Store::Sqlite, Driver::Python("huey_peer.py")),
    jobs_only("apalis-sqlite", "apalis-sqlite", Store::Sqlite, Driver::Apalis),
    quell("quell-postgres", Store::Postgres),
    System {
        id: "graphile-worker",
        title: "graphile-worker",
        store: Store::Postgres,
        driver: Driver::Node("graphile.mjs"),
        jobs: Ok("jobs"),
        keyed: Ok("keyed"),
        burst: Ok("burst"),
    },
    System {
        id: "graphile-worker-local",
        title: "graphile-worker, local queue",
        store: Store::Postgres,
        driver: Driver::Node("graphile.mjs"),
        jobs: Err("as above"),
        keyed: Ok("keyed-local"),
        burst: Err("as above"),
    },
    System {
        id: "pg-boss",
        title: "pg-boss",
        store: Store::Postgres,
        driver: Driver::Node("pg-boss.mjs"),
        jobs: Ok("jobs"),
        keyed: Ok("keyed"),
        burst: Ok("burst"),
    },
    System {
        id: "procrastinate",
        title: "procrastinate",
        store: Store::Postgres,
        driver: Driver::Python("procrastinate_peer.py"),
        jobs: Ok("jobs"),
        keyed: Ok("keyed"),
        burst: Err(NO_DEBOUNCE),
    },
    jobs_only("apalis-postgres", "apalis-postgres", Store::Postgres, Driver::Apalis),
    quell("quell-redis-always", Store::RedisAlways),
    bullmq("bullmq-always", Store::RedisAlways),
    quell("quell-redis-everysec", Store::RedisEverysec),
    bullmq("bullmq-everysec", Store::RedisEverysec),
    System {
        id: "restate",
        title: "Restate",
        store: Store::Own,
        driver: Driver::Node("restate.mjs"),
        jobs: Ok("jobs"),
        keyed: Ok("keyed"),
        burst: Ok("burst"),
    },
    jobs_only("beanstalkd-0", "beanstalkd `-f 0`", Store::Own, Driver::Beanstalkd { flush_ms: 0 }),
    jobs_only("beanstalkd-50", "beanstalkd `-f 50`", Store::Own, Driver::Beanstalkd { flush_ms: 50 }),
];

#[must_use]
pub fn named(id: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_has_a_quell_to_compare_with_and_names_are_unique() {
        for store in Store::ALL {
            assert!(named(store.quell()).is_some_and(System::is_quell), "{store:?}");
        }
        for (i, system) in SYSTEMS.iter().enumerate() {
            assert!(SYSTEMS[..i].iter().all(|other| other.id != system.id), "{}", system.id);
        }
    }

    #[test]
    fn the_driver_of_every_peer_is_a_file_of_this_crate() {
        let peers = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        for system in SYSTEMS {
            let file = match system.driver {
                Driver::Node(file) => peers.join("node").join(file),
                Driver::Python(file) => peers.join("python").join(file),
                Driver::Apalis => peers.join("apalis/src/main.rs"),
                Driver::Quell | Driver::Beanstalkd { .. } => continue,
            };
            assert!(file.is_file(), "{}", file.display());
        }
    }
}
