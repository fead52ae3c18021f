-- The schema is called quell here and whatever the store was told when it runs: see `connection.rs`.
-- Times are milliseconds since the epoch by the server's clock. Texts that are compared are compared as bytes.
-- Nothing refers to anything by a foreign key: every row is written by the one who holds its lane's lock.

CREATE TABLE quell.meta (
  one         boolean PRIMARY KEY CHECK (one),
  version     integer NOT NULL,
  test_offset bigint  NOT NULL,  -- added to the clock by builds with the feature test-clock, otherwise unused
  sealed      text,              -- who has sealed it, if somebody has: then nothing may be changed
  copy_place  text,              -- where a copy into this store goes on, while it is not finished
  origin      text,              -- the timeline and the table in which numbers were given last
  run_mark    bigint  NOT NULL,  -- the retention has looked at finished runs up to this id
  audit_mark  bigint  NOT NULL   -- audit records up to this id may be deleted
);

-- A block of 1,000 numbers at a time: lane ids, run numbers, seqs, tokens and record ids all come from it. It ends below
-- 2^53, where JSON readers begin to round.
CREATE SEQUENCE quell.number INCREMENT BY 1000 MINVALUE 1000 START WITH 1000 MAXVALUE 9007199254739000;

CREATE TABLE quell.queue (
  id         integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  tenant     text    COLLATE "C" NOT NULL,  -- '' for no tenant
  name       text    COLLATE "C" NOT NULL,
  priorities integer NOT NULL DEFAULT 0,    -- one bit for each priority that a waiting lane has ever had
  accepted   bigint  NOT NULL DEFAULT 0,
  succeeded  bigint  NOT NULL DEFAULT 0,
  dead       bigint  NOT NULL DEFAULT 0,
  discarded  bigint  NOT NULL DEFAULT 0,
  delayed    bigint  NOT NULL DEFAULT 0,
  buffered   bigint  NOT NULL DEFAULT 0,
  in_flight  bigint  NOT NULL DEFAULT 0,
  UNIQUE (tenant, name)
) WITH (fillfactor = 50);

-- What transactions changed in the totals, not yet added to their queue: so no two of them meet at one counter row.
CREATE TABLE quell.queue_delta (
  queue_id  integer NOT NULL,
  accepted  bigint  NOT NULL,
  succeeded bigint  NOT NULL,
  dead      bigint  NOT NULL,
  discarded bigint  NOT NULL,
  delayed   bigint  NOT NULL,
  buffered  bigint  NOT NULL,
  in_flight bigint  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE quell.queue_pause (
  queue  text    COLLATE "C" NOT NULL,
  every  boolean NOT NULL,             -- for all tenants
  tenant text    COLLATE "C" NOT NULL,
  body   bytea   NOT NULL,
  PRIMARY KEY (queue, every, tenant)
);

-- No column that changes under load is in an index of this table, so an update stays on its page and touches none: hence
-- the room on each page. What lanes are found by is in the two tables behind it, whose rows come and go.
CREATE TABLE quell.lane (
  id       bigint   PRIMARY KEY,
  queue_id integer  NOT NULL,
  key      text     COLLATE "C" NOT NULL,
  due_at   bigint,            -- never later than the true due time; empty while idle, running or paused: see due
  lease_at bigint,            -- never later than the end of the lease; empty unless running: see lease
  priority smallint NOT NULL,
  claim_id text     COLLATE "C",  -- of the claim that holds it
  held     boolean  NOT NULL,     -- paused by an operator or blocked by a failed run
  body     bytea    NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE quell.lane ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX lane_key ON quell.lane (queue_id, key);
CREATE INDEX lane_held ON quell.lane (queue_id, id) WHERE held;

-- One row for each lane with a due time.
CREATE TABLE quell.due (
  queue_id integer  NOT NULL,
  priority smallint NOT NULL,
  due_at   bigint   NOT NULL,
  lane_id  bigint   NOT NULL,
  PRIMARY KEY (queue_id, priority, due_at, lane_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- One row for each lane under a lease.
CREATE TABLE quell.lease (
  queue_id integer NOT NULL,
  lease_at bigint  NOT NULL,
  lane_id  bigint  NOT NULL,
  claim_id text    COLLATE "C",
  PRIMARY KEY (queue_id, lease_at, lane_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX lease_claim ON quell.lease (claim_id) WHERE claim_id IS NOT NULL;

-- The payload is text and not jsonb: it is given back as it was sent, with its \u0000, its order and its numbers.
CREATE TABLE quell.event (
  lane_id     bigint   NOT NULL,
  seq         bigint   NOT NULL,
  received_at bigint   NOT NULL,
  mark        bigint,             -- the run it was expressly given to
  was_seq     bigint,
  priority    smallint NOT NULL,
  id          text     COLLATE "C" NOT NULL,
  print       bytea    NOT NULL,  -- of the payload as it was sent
  headers     text,
  payload     text     NOT NULL,
  PRIMARY KEY (lane_id, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX event_id ON quell.event (lane_id, id);

CREATE SEQUENCE quell.run_id;

CREATE TABLE quell.run (
  id       bigint   PRIMARY KEY DEFAULT nextval('quell.run_id'),  -- the order in which runs ended
  lane_id  bigint   NOT NULL,
  number   bigint   NOT NULL,
  queue_id integer  NOT NULL,
  state    smallint NOT NULL,
  marked   boolean  NOT NULL,  -- its events carry its number
  ended_at bigint   NOT NULL,
  count    bigint   NOT NULL,  -- 0 when its events went into another run
  lo       bigint   NOT NULL,
  hi       bigint   NOT NULL,
  body     bytea    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE UNIQUE INDEX run_lane ON quell.run (lane_id, number);
CREATE INDEX run_dead ON quell.run (id) WHERE state = 4 AND count > 0;
CREATE INDEX run_replaced ON quell.run (ended_at) WHERE count = 0;

CREATE TABLE quell.audit (
  id           bigint   PRIMARY KEY,
  at           bigint   NOT NULL,
  queue_id     integer  NOT NULL,
  lane_id      bigint,
  run          bigint,
  change       smallint NOT NULL,
  from_state   smallint,
  to_state     smallint,
  verdict      smallint,
  attempt      integer  NOT NULL,
  token        bigint   NOT NULL,
  upto_seq     bigint   NOT NULL,
  next_at      bigint,
  other_run    bigint,
  worker       text,
  prior_worker text,
  actor        text
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX audit_lane ON quell.audit (lane_id, id) WHERE lane_id IS NOT NULL;

CREATE FUNCTION quell.audit_never_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'audit records cannot be changed' USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION quell.audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.id > (SELECT audit_mark FROM quell.meta) THEN
    RAISE EXCEPTION 'audit records above the retention mark cannot be deleted' USING ERRCODE = 'restrict_violation';
  END IF;
  RETURN OLD;
END
$$;

CREATE TRIGGER audit_never_changes BEFORE UPDATE ON quell.audit
  FOR EACH ROW EXECUTE FUNCTION quell.audit_never_changes();
CREATE TRIGGER audit_stays BEFORE DELETE ON quell.audit
  FOR EACH ROW EXECUTE FUNCTION quell.audit_stays();
CREATE TRIGGER audit_never_empties BEFORE TRUNCATE ON quell.audit
  FOR EACH STATEMENT EXECUTE FUNCTION quell.audit_never_changes();

CREATE TABLE quell.aside (
  number   bigint  PRIMARY KEY,           -- the order of acceptance
  queue_id integer NOT NULL,
  key      text    COLLATE "C" NOT NULL,
  id       text    COLLATE "C" NOT NULL,
  ready_at bigint  NOT NULL,
  look_at  bigint  NOT NULL,              -- later than ready_at while its lane is full
  body     bytea   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX aside_look ON quell.aside (queue_id, look_at, ready_at, number);
CREATE INDEX aside_lane ON quell.aside (queue_id, key, ready_at, number);
CREATE INDEX aside_id ON quell.aside (id);

CREATE TABLE quell.step (
  lane_id  bigint  NOT NULL,
  run      bigint  NOT NULL,
  revision integer NOT NULL,
  name     text    COLLATE "C" NOT NULL,
  at       bigint  NOT NULL,
  token    bigint  NOT NULL,
  value    text,                          -- empty while only the intent is recorded
  PRIMARY KEY (lane_id, run, revision, name)
);

CREATE TABLE quell.schedule (
  tenant   text    COLLATE "C" NOT NULL,
  name     text    COLLATE "C" NOT NULL,
  queue_id integer NOT NULL,
  key      text    COLLATE "C" NOT NULL,
  next_at  bigint,
  body     bytea   NOT NULL,
  PRIMARY KEY (tenant, name)
);

CREATE INDEX schedule_next ON quell.schedule (queue_id, next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_key ON quell.schedule (queue_id, key);

INSERT INTO quell.meta (one, version, test_offset, sealed, run_mark, audit_mark) VALUES (true, 0, 0, NULL, 0, 0);
