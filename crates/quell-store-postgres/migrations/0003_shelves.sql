-- Shelves: small documents beside the lanes, such as the tokens of an API or the presence of workers. Written by whoever
-- holds the lock of their shelf.
CREATE TABLE quell.document (
  shelf      text   COLLATE "C" NOT NULL,
  name       text   COLLATE "C" NOT NULL,
  expires_at bigint,             -- gone from then on; empty when it stays until it is removed
  body       bytea  NOT NULL,
  PRIMARY KEY (shelf, name)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- How many of a shelf are live, and which are over, without reading their bodies.
CREATE INDEX document_expires ON quell.document (shelf, expires_at);
