-- Everything that can happen to a lane beside the plain way: giving way to newer events, frozen runs, blocks, priority,
-- events aside, steps and schedules.

ALTER TABLE meta ADD COLUMN backup INTEGER NOT NULL DEFAULT 0;      -- 1 in a copy made by Quell until it is first opened
ALTER TABLE meta ADD COLUMN restored_at INTEGER;                    -- when a backup was last opened as a store
ALTER TABLE meta ADD COLUMN scrub_at INTEGER;                       -- since when erased content may be in unused parts of the file

ALTER TABLE queue ADD COLUMN priorities INTEGER NOT NULL DEFAULT 16;  -- bit n: some lane has had priority n
ALTER TABLE queue ADD COLUMN schedules  INTEGER NOT NULL DEFAULT 0;   -- how many schedules fire into it

ALTER TABLE lane ADD COLUMN priority         INTEGER NOT NULL DEFAULT 4;  -- the highest over its events
ALTER TABLE lane ADD COLUMN blocked_at       INTEGER;
ALTER TABLE lane ADD COLUMN blocked_run      INTEGER;
ALTER TABLE lane ADD COLUMN queued           TEXT;     -- frozen runs that wait behind the current one, as JSON; rare
ALTER TABLE lane ADD COLUMN o_priority       INTEGER;
ALTER TABLE lane ADD COLUMN o_step           INTEGER;  -- the quiet period that the latest event asked for
ALTER TABLE lane ADD COLUMN r_flags          INTEGER;  -- what the run is and what its queue says, packed by rows.rs
ALTER TABLE lane ADD COLUMN r_interrupts     INTEGER;
ALTER TABLE lane ADD COLUMN r_revision       INTEGER;
ALTER TABLE lane ADD COLUMN r_priority       INTEGER;
ALTER TABLE lane ADD COLUMN r_max_events     INTEGER;
ALTER TABLE lane ADD COLUMN r_max_bytes      INTEGER;
ALTER TABLE lane ADD COLUMN r_max_interrupts INTEGER;
ALTER TABLE lane ADD COLUMN r_head           INTEGER;  -- the lane's head at the latest claim
ALTER TABLE lane ADD COLUMN r_claim_id       TEXT;
ALTER TABLE lane ADD COLUMN r_extra          TEXT;     -- links to other runs and whom to notify, as JSON; rare

-- Due lanes are found per priority, so that a claim reads only what it may take, whatever waits beside it.
DROP INDEX lane_due;
CREATE INDEX lane_due ON lane (queue_id, priority, due_at) WHERE due_at IS NOT NULL;
DROP INDEX lane_paused;
CREATE INDEX lane_paused ON lane (queue_id) WHERE paused_at IS NOT NULL OR blocked_at IS NOT NULL;
CREATE INDEX lane_claim ON lane (r_claim_id) WHERE r_claim_id IS NOT NULL;

ALTER TABLE event ADD COLUMN mark     INTEGER;  -- the run it was expressly given to; else its number says which
ALTER TABLE event ADD COLUMN was_seq  INTEGER;  -- its number before it was redriven as new
ALTER TABLE event ADD COLUMN priority INTEGER;  -- empty for the default

ALTER TABLE run ADD COLUMN flags      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN interrupts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN revision   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN priority   INTEGER NOT NULL DEFAULT 4;
ALTER TABLE run ADD COLUMN max_events INTEGER NOT NULL DEFAULT 1000;
ALTER TABLE run ADD COLUMN max_bytes  INTEGER NOT NULL DEFAULT 4194304;
ALTER TABLE run ADD COLUMN extra      TEXT;

-- Runs whose events went into another one: nothing refers to them, so the retention takes them by their own index.
CREATE INDEX run_replaced ON run (finished_at) WHERE count = 0;

ALTER TABLE audit ADD COLUMN other_run INTEGER;
ALTER TABLE audit ADD COLUMN verdict   INTEGER;

-- Events that are not in a lane yet: delayed, fired by a schedule, carried by a settle, or appended inside a caller's own
-- transaction.
CREATE TABLE aside (
  number      INTEGER PRIMARY KEY,   -- the order of acceptance
  queue_id    INTEGER NOT NULL,
  key         TEXT    NOT NULL,
  id          TEXT    NOT NULL,
  given       INTEGER NOT NULL,      -- 1 when the id is the sender's
  accepted_at INTEGER NOT NULL,
  ready_at    INTEGER NOT NULL,
  look_at     INTEGER NOT NULL,      -- later than ready_at while its lane is full
  priority    INTEGER NOT NULL,
  window      TEXT,                  -- the event's own window, as JSON
  policy      TEXT    NOT NULL,      -- the queue's rules when it was accepted, as JSON
  headers     TEXT,
  payload     TEXT    NOT NULL
) STRICT;
CREATE INDEX aside_look ON aside (queue_id, look_at, ready_at, number);
CREATE INDEX aside_lane ON aside (queue_id, key, ready_at, number);
CREATE INDEX aside_id ON aside (id);

-- What an attempt remembers for the next one.
CREATE TABLE step (
  lane_id  INTEGER NOT NULL,
  run      INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  name     TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  token    INTEGER NOT NULL,
  value    TEXT,                     -- empty while only the intent is recorded
  PRIMARY KEY (lane_id, run, revision, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE schedule (
  tenant    TEXT    NOT NULL,
  name      TEXT    NOT NULL,
  queue_id  INTEGER NOT NULL,
  cron      TEXT    NOT NULL,
  zone      TEXT    NOT NULL,
  key       TEXT    NOT NULL,
  payload   TEXT    NOT NULL,
  policy    TEXT    NOT NULL,
  last_fire INTEGER NOT NULL,        -- nothing at or before it fires again
  next_at   INTEGER,
  PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_next ON schedule (queue_id, next_at) WHERE next_at IS NOT NULL;
