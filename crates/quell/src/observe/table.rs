//! Every metric by its name: what `docs/reference/metrics.md` is made of, and what the exporter says of each.
//!
//! A crate that counts something of its own has a table of its own; the command puts them together.

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows, from the start of its process.
    Counter,
    /// As it is at the scrape.
    Gauge,
    /// How many were how long.
    Histogram,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub meaning: &'static str,
}

impl Metric {
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
    ) -> Metric {
        Metric { name, kind: Kind::Counter, labels, meaning }
    }

    pub const fn gauge(name: &'static str, labels: &'static [&'static str], meaning: &'static str) -> Metric {
        Metric { name, kind: Kind::Gauge, labels, meaning }
    }

    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
    ) -> Metric {
        Metric { name, kind: Kind::Histogram, labels, meaning }
    }
}

/// Tells the recorder of this process what they mean.
pub fn describe(table: &[Metric]) {
    for Metric { name, kind, meaning, .. } in table {
        match kind {
            Kind::Counter => metrics::describe_counter!(*name, *meaning),
            Kind::Gauge => metrics::describe_gauge!(*name, *meaning),
            Kind::Histogram => metrics::describe_histogram!(*name, *meaning),
        }
    }
}

/// What the engine and its workers count, and what the store tells at a scrape.
pub const METRICS: &[Metric] = &[
    Metric::counter(
        "quell_events_received_total",
        &["queue", "met"],
        "events this process stored; `met` is what they found: `opened`, `waiting`, `running`, `aside`, `duplicate`",
    ),
    Metric::counter("quell_runs_claimed_total", &["queue"], "attempts that workers of this process took"),
    Metric::counter(
        "quell_runs_ended_total",
        &["queue", "end"],
        "how they ended: a state, `lost` (the lease) or `unsettled` (the store could not be told)",
    ),
    Metric::histogram("quell_run_seconds", &["queue"], "how long they were held"),
    Metric::counter(
        "quell_leases_reclaimed_total",
        &["queue"],
        "leases of others that this process took back",
    ),
    Metric::gauge(
        "quell_start_expired_leases",
        &[],
        "leases that were over when this process started, and that it took back then",
    ),
    Metric::gauge(
        "quell_start_timestamp_seconds",
        &[],
        "when the workers of this process began, in seconds since 1970",
    ),
    Metric::counter(
        "quell_store_failures_total",
        &["call"],
        "calls of the worker's loop that the store did not answer as hoped",
    ),
    Metric::gauge(
        "quell_events_accepted",
        &["queue"],
        "events ever accepted, by the store's totals; the sum of the six that follow",
    ),
    Metric::gauge("quell_events_succeeded", &["queue"], "events whose run succeeded"),
    Metric::gauge("quell_events_dead", &["queue"], "events in the dead letter"),
    Metric::gauge("quell_events_discarded", &["queue"], "events removed by policy, cancel, purge or erase"),
    Metric::gauge("quell_events_delayed", &["queue"], "events kept aside until their time"),
    Metric::gauge("quell_events_buffered", &["queue"], "events that wait for their window"),
    Metric::gauge(
        "quell_events_in_flight",
        &["queue"],
        "events whose run is held, in backoff or waits to be claimed again",
    ),
    Metric::gauge(
        "quell_events_unaccounted",
        &["queue"],
        "accepted events without those six: anything but 0 means that events were lost or counted twice",
    ),
    Metric::gauge(
        "quell_lanes_running",
        &["queue", "handler"],
        "keys that workers hold now, of all processes; `handler` is `pull` where workers elsewhere claim them, `own` otherwise",
    ),
    Metric::gauge(
        "quell_workers_concurrency",
        &[],
        "keys that all workers of the store together may hold at once; workers that pull are not known",
    ),
    Metric::gauge(
        "quell_lease_oldest_seconds",
        &["queue"],
        "how long the key that has been held longest has been held",
    ),
    Metric::gauge(
        "quell_leases_silent",
        &["queue"],
        "keys that are held under a lease that is over: no heartbeat came, and nobody has taken them back",
    ),
    Metric::gauge(
        "quell_oldest_due_seconds",
        &["queue"],
        "how long the longest waiting due key has been due",
    ),
    Metric::gauge(
        "quell_queue_paused",
        &["queue"],
        "queues of this name, one for each tenant, that an operator has paused",
    ),
    Metric::gauge(
        "quell_source_paused",
        &["source", "because"],
        "sources of this name, one for each tenant, that let nothing go: `breaker` (too many faults), `asked` (the source asked for silence), `disabled` (by an operator), `removed` (not configured any more)",
    ),
    Metric::counter(
        "quell_store_unreadable_total",
        &[],
        "scrapes for which the store did not tell its totals",
    ),
];
