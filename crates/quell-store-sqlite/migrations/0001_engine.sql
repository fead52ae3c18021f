-- The engine: lanes with their open and current run in one row, events clustered by lane, finished runs and audit
-- in append-only order. Times are milliseconds of store time; numbers come from meta.last_number.

-- One row of facts that belong to the whole store.
CREATE TABLE meta (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  last_number  INTEGER NOT NULL,  -- the store-wide sequence: lane ids, run numbers, seqs, tokens, record ids
  boot_id      TEXT    NOT NULL,  -- the boot of the host for which clock_offset holds
  clock_offset INTEGER NOT NULL,  -- store time minus the host's boot clock
  clock_high   INTEGER NOT NULL,  -- the latest store time that was written: a new boot never starts before it
  run_mark     INTEGER NOT NULL,  -- the retention has looked at finished runs up to this id
  audit_mark   INTEGER NOT NULL,  -- audit records up to this id may be deleted
  test_offset  INTEGER NOT NULL   -- added to the clock by builds with the feature test-clock, otherwise unused
) STRICT;

-- A queue of one tenant, with the counters of the no-loss equation.
CREATE TABLE queue (
  id          INTEGER PRIMARY KEY,
  tenant      TEXT    NOT NULL,   -- '' for no tenant
  name        TEXT    NOT NULL,
  next_at     INTEGER,            -- never later than the earliest due time or lease end of its lanes
  max_running INTEGER,            -- as the latest claim had it: then a settle wakes those who wait for a place
  running     INTEGER NOT NULL,
  accepted    INTEGER NOT NULL,
  succeeded   INTEGER NOT NULL,
  dead        INTEGER NOT NULL,
  discarded   INTEGER NOT NULL,
  delayed     INTEGER NOT NULL,
  buffered    INTEGER NOT NULL,
  in_flight   INTEGER NOT NULL,
  UNIQUE (tenant, name)
) STRICT;
CREATE INDEX queue_next ON queue (next_at) WHERE next_at IS NOT NULL;

-- A pause of a queue for one tenant, or with every = 1 for all of them.
CREATE TABLE queue_pause (
  queue  TEXT    NOT NULL,
  every  INTEGER NOT NULL,
  tenant TEXT    NOT NULL,
  at     INTEGER NOT NULL,
  by     TEXT    NOT NULL,
  PRIMARY KEY (queue, every, tenant)
) STRICT, WITHOUT ROWID;

-- Workers by number, so that audit rows stay small.
CREATE TABLE worker (
  id       INTEGER PRIMARY KEY,
  identity TEXT NOT NULL UNIQUE
) STRICT;

-- One row is the whole state of a lane: identity, what it waits for, its open run (o_) and its current run (r_).
CREATE TABLE lane (
  id             INTEGER PRIMARY KEY,
  queue_id       INTEGER NOT NULL,
  key            TEXT    NOT NULL,
  due_at         INTEGER,          -- never later than the true due time; empty while idle, running or paused
  lease_at       INTEGER,          -- never later than the end of the lease; empty unless running
  head_seq       INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  paused_at      INTEGER,
  paused_by      TEXT,
  o_number       INTEGER,
  o_lo           INTEGER,
  o_count        INTEGER,
  o_bytes        INTEGER,
  o_policy       INTEGER,          -- 0 none, 1 fixed, 2 quiet
  o_wait         INTEGER,          -- the fixed wait or the quiet period
  o_max_wait     INTEGER,
  o_max_events   INTEGER,
  o_max_bytes    INTEGER,
  o_first_at     INTEGER,
  o_latest_at    INTEGER,
  o_closed_by    INTEGER,
  o_closed_at    INTEGER,
  r_number       INTEGER,
  r_state        INTEGER,
  r_lo           INTEGER,
  r_hi           INTEGER,
  r_count        INTEGER,
  r_bytes        INTEGER,
  r_first_at     INTEGER,
  r_last_at      INTEGER,
  r_fired_by     INTEGER,
  r_claims       INTEGER,
  r_refunds      INTEGER,
  r_retries      INTEGER,
  r_releases     INTEGER,
  r_max_attempts INTEGER,
  r_token        INTEGER,
  r_worker       INTEGER,
  r_claimed_at   INTEGER,
  r_heartbeat_at INTEGER,
  r_lease_until  INTEGER,
  r_due_at       INTEGER,
  r_error        TEXT
) STRICT;
CREATE UNIQUE INDEX lane_key ON lane (queue_id, key);
CREATE INDEX lane_due ON lane (queue_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX lane_lease ON lane (queue_id, lease_at) WHERE lease_at IS NOT NULL;
CREATE INDEX lane_paused ON lane (queue_id) WHERE paused_at IS NOT NULL;

-- Events of a lane side by side: a claim reads one range. They stay until the retention removes their run.
CREATE TABLE event (
  lane_id     INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  id          TEXT    NOT NULL,
  fingerprint BLOB,               -- of the payload, when the caller gave the id
  received_at INTEGER NOT NULL,
  headers     TEXT,
  payload     TEXT    NOT NULL,
  PRIMARY KEY (lane_id, seq)
) STRICT, WITHOUT ROWID;
-- Made ids grow with time, so they cost one right-hand page; given ids pay for the duplicate check they ask for.
CREATE INDEX event_id ON event (id);

-- Runs that ended, in the order in which they ended.
CREATE TABLE run (
  id           INTEGER PRIMARY KEY,
  lane_id      INTEGER NOT NULL,
  number       INTEGER NOT NULL,
  state        INTEGER NOT NULL,
  lo           INTEGER NOT NULL,
  hi           INTEGER NOT NULL,
  count        INTEGER NOT NULL,
  bytes        INTEGER NOT NULL,
  first_at     INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  fired_by     INTEGER NOT NULL,
  claims       INTEGER NOT NULL,
  refunds      INTEGER NOT NULL,
  retries      INTEGER NOT NULL,
  token        INTEGER NOT NULL,
  worker       INTEGER,
  claimed_at   INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  finished_at  INTEGER NOT NULL,
  error        TEXT,
  result       TEXT,
  usage        TEXT
) STRICT;
CREATE UNIQUE INDEX run_lane ON run (lane_id, number);
CREATE INDEX run_dead ON run (id) WHERE state = 4;

-- The trail: ids and codes only.
CREATE TABLE audit (
  id           INTEGER PRIMARY KEY,
  at           INTEGER NOT NULL,
  queue_id     INTEGER NOT NULL,
  lane_id      INTEGER,
  run          INTEGER,
  change       INTEGER NOT NULL,
  from_state   INTEGER,
  to_state     INTEGER,
  attempt      INTEGER NOT NULL,
  token        INTEGER NOT NULL,
  worker       INTEGER,
  prior_worker INTEGER,
  upto_seq     INTEGER NOT NULL,
  next_at      INTEGER,
  actor        TEXT
) STRICT;
CREATE INDEX audit_lane ON audit (lane_id);

CREATE TRIGGER audit_never_changes BEFORE UPDATE ON audit
BEGIN
  SELECT RAISE(ABORT, 'audit records cannot be changed');
END;
CREATE TRIGGER audit_stays BEFORE DELETE ON audit
WHEN OLD.id > (SELECT audit_mark FROM meta)
BEGIN
  SELECT RAISE(ABORT, 'audit records above the retention mark cannot be deleted');
END;
