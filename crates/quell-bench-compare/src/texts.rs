//! What the page says of each system in words: its settings here, and what it does not do. Figures are never written here.

/// One row of the table of systems.
pub struct Text {
    /// Of a system, without what tells its rows apart.
    pub id: &'static str,
    pub name: &'static str,
    pub settings: &'static str,
    pub order: &'static str,
    pub debounce: &'static str,
    pub history: &'static str,
}

pub const TEXTS: [Text; 9] = [
    Text {
        id: "quell-sqlite",
        name: "**Quell**",
        settings: "full durability, audit trail and index over ids on; 1,024 lanes at once (`keyed` 500, `burst` 512)",
        order: "strictly serial, in order",
        debounce: "quiet window; one run with every event",
        history: "audit trail of every step, kept until its retention ends",
    },
    Text {
        id: "graphile-worker",
        name: "graphile-worker",
        settings: "as its page on performance says: 24 jobs at once, 25 connections, local queue of 500, completions in batches; `keyed` without the local queue, because with it named queues lose their order (the row “local queue”)",
        order: "named queues: serial, in order without a local queue",
        debounce: "`jobKey` with `runAt`; payloads that are lists are joined, so every event arrives; a job that already runs is not held back",
        history: "none: a finished job is deleted",
    },
    Text {
        id: "pg-boss",
        name: "pg-boss",
        settings: "`fetch` and `complete` in batches of 500 by hand, since a worker waits half a second between batches; 25 connections; `key_strict_fifo`, whose order was kept only when no two events of a key were in one `insert`",
        order: "`key_strict_fifo`: serial, in order of creation",
        debounce: "`sendDebounced`: at most one job per slot of time; what falls into a taken slot is dropped, and no slot waits for quiet",
        history: "the finished job for its retention; no trail of steps",
    },
    Text {
        id: "procrastinate",
        name: "procrastinate",
        settings: "100 jobs at once in one asynchronous worker, 25 connections, finished jobs deleted",
        order: "`lock`: serial, in order",
        debounce: "none: `queueing_lock` refuses a second waiting job, which drops the event and does not move the time",
        history: "a table of events per job while the job is kept",
    },
    Text {
        id: "apalis-postgres",
        name: "apalis",
        settings: "batches of 500, polled every 5 ms, tasks spawned; SQLite with `synchronous = FULL` on every measured connection (its own setup turns it off). On SQLite it took four batches in two seconds in every round, so its drain is set by that pace and not by the disk",
        order: "none",
        debounce: "none",
        history: "the finished task with its result; no trail of steps",
    },
    Text {
        id: "huey",
        name: "huey",
        settings: "SQLite with `fsync`, write-ahead log, 4 worker threads, no results; it has no bulk, so its backlog is a quarter as long",
        order: "none",
        debounce: "none",
        history: "none: a task is gone when it is taken, also when its worker dies",
    },
    Text {
        id: "bullmq-always",
        name: "BullMQ",
        settings: "one worker, 256 jobs at once, finished jobs removed, `addBulk`",
        order: "none in the free edition",
        debounce: "`deduplication` with `extend` and `replace`: one run per burst with the last event; the others are dropped",
        history: "finished jobs if they are kept; no trail of steps",
    },
    Text {
        id: "restate",
        name: "Restate",
        settings: "one server with its defaults, journals not kept, a virtual object per key, one-way calls over 64 kept connections. Handling begins with the first call, so `drain` and `keyed` are sending and handling together",
        order: "virtual objects: serial, in order of arrival",
        debounce: "none of its own; built here with state and a delayed call per event",
        history: "journal of an invocation, if it is kept",
    },
    Text {
        id: "beanstalkd-0",
        name: "beanstalkd",
        settings: "log of writes on, flushed at every write (`-f 0`) or every 50 ms (`-f 50`); commands pipelined, 1,000 for a bulk and 64 for a drain on 4 connections",
        order: "none",
        debounce: "none",
        history: "none: a deleted job is gone",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems;

    #[test]
    fn every_driver_has_its_words() {
        for text in &TEXTS {
            assert!(systems::named(text.id).is_some(), "{}", text.id);
        }
        for system in systems::SYSTEMS {
            let told = |text: &Text| systems::named(text.id).is_some_and(|of| same(of, &system));
            assert!(TEXTS.iter().any(told), "{}", system.id);
        }
    }

    fn same(one: &systems::System, other: &systems::System) -> bool {
        use systems::Driver::Beanstalkd;
        one.driver == other.driver
            || matches!((one.driver, other.driver), (Beanstalkd { .. }, Beanstalkd { .. }))
    }
}
