-- Sources: outside parties with limits of their own, for which lanes wait. A number of 0 stands for none wherever it is part
-- of an index.

-- What is declared. Few rows, and they hardly ever change.
CREATE TABLE quell.declaration (
  name text  COLLATE "C" PRIMARY KEY,
  body bytea NOT NULL
);

-- One row for each declared name and tenant. It changes with every lane that is handed out and with every verdict, and never
-- in an index: hence the room on each page. Rows are locked after lanes, in the order of their numbers, and never go.
CREATE TABLE quell.source (
  id     bigint PRIMARY KEY,
  tenant text   COLLATE "C" NOT NULL,  -- '' for a shared one, and for those who have no tenant
  name   text   COLLATE "C" NOT NULL,
  body   bytea  NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX source_name ON quell.source (name, tenant);

-- Answers that are kept, or being fetched; written by whoever holds the lock of their source.
CREATE TABLE quell.answer (
  source     bigint  NOT NULL,
  key        text    COLLATE "C" NOT NULL,
  expires_at bigint  NOT NULL,
  over_at    bigint  NOT NULL,  -- worth keeping neither as an answer nor as a flight from then on
  kept       boolean NOT NULL,  -- there is an answer, not only somebody who fetches it
  body       bytea   NOT NULL,
  PRIMARY KEY (source, key)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX answer_expires ON quell.answer (source, expires_at);
CREATE INDEX answer_over ON quell.answer (over_at);

-- For which sources lanes of a queue have ever waited: a look for due lanes asks for the first of each.
CREATE TABLE quell.queue_source (
  queue_id integer NOT NULL,
  source   bigint  NOT NULL,
  PRIMARY KEY (queue_id, source)
);

CREATE INDEX queue_source_source ON quell.queue_source (source);

ALTER TABLE quell.event ADD COLUMN source bigint;

-- The source of the lane's next batch, or of the one under way.
ALTER TABLE quell.lane ADD COLUMN source bigint NOT NULL DEFAULT 0;

-- Lanes of a source lie together, so that one that lets nobody go is passed over as a whole.
ALTER TABLE quell.due ADD COLUMN source bigint NOT NULL DEFAULT 0;
ALTER TABLE quell.due DROP CONSTRAINT due_pkey;
ALTER TABLE quell.due ADD PRIMARY KEY (queue_id, source, priority, due_at, lane_id);
