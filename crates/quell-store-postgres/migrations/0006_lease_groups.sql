-- A claim of a thousand lanes wrote a thousand rows into lease, with two entries in indexes each, and their ends took them out
-- one by one. It writes a few rows now, with up to two hundred lanes in each. A lane stays named in its row after it was handed
-- back: it is under that lease only as long as its own row says so, too. A row goes when all of its lanes are done.
-- Leases that programs of older versions have given, or give beside this one, are in lease as they were.
CREATE TABLE quell.lease_group (
  queue_id integer  NOT NULL,
  lease_at bigint   NOT NULL,
  token    bigint   NOT NULL,         -- of the first of its lanes: given once only
  claim_id text     COLLATE "C",
  lanes    bigint[] NOT NULL,
  PRIMARY KEY (queue_id, lease_at, token)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX lease_group_claim ON quell.lease_group (claim_id) WHERE claim_id IS NOT NULL;
