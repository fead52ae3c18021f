-- Outside parties with limits of their own.

-- What is declared; each tenant's own state of it is in `source`.
CREATE TABLE declaration (
  name  TEXT PRIMARY KEY,
  rules TEXT NOT NULL                -- as JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE source (
  id     INTEGER PRIMARY KEY,        -- from the store-wide sequence
  tenant TEXT NOT NULL,              -- '' for a shared one and for no tenant
  name   TEXT NOT NULL,
  body   TEXT NOT NULL,              -- the whole source, as JSON
  UNIQUE (tenant, name)
) STRICT;

CREATE INDEX source_name ON source (name, tenant);

-- Answers of sources that are kept or being fetched.
CREATE TABLE answer (
  source     INTEGER NOT NULL,
  key        TEXT    NOT NULL,
  value      TEXT,                   -- as JSON; empty while it is fetched for the first time
  kept_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  flight     TEXT,                   -- who fetches it, as JSON
  over_at    INTEGER NOT NULL,       -- worth keeping neither as an answer nor as a flight from then on
  UNIQUE (source, key)
) STRICT;

-- Which answer makes room when a source has as many as it may.
CREATE INDEX answer_expires ON answer (source, expires_at);
CREATE INDEX answer_over ON answer (over_at);

ALTER TABLE queue ADD COLUMN governed INTEGER NOT NULL DEFAULT 0;  -- 1 when some lane has asked a source

ALTER TABLE lane ADD COLUMN source   INTEGER NOT NULL DEFAULT 0;   -- the source that its next batch asks, 0 for none
ALTER TABLE lane ADD COLUMN o_source INTEGER;

ALTER TABLE event ADD COLUMN source INTEGER;
ALTER TABLE aside ADD COLUMN source TEXT;                          -- the event's own, by name

-- A claim reads the lanes of one source only when that source lets somebody go.
DROP INDEX lane_due;
CREATE INDEX lane_due ON lane (queue_id, priority, source, due_at) WHERE due_at IS NOT NULL;
-- The lanes that wait for a source, and their queues.
CREATE INDEX lane_source ON lane (source, queue_id) WHERE source <> 0 AND lease_at IS NULL;
