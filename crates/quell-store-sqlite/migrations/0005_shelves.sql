-- Small documents beside the lanes: the tokens of an API, the presence of workers.
CREATE TABLE document (
  shelf      TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  put_at     INTEGER NOT NULL,
  expires_at INTEGER,                -- gone from then on; empty when it stays until it is removed
  body       TEXT    NOT NULL,       -- as JSON
  PRIMARY KEY (shelf, name)
) STRICT, WITHOUT ROWID;

-- How many of a shelf are live, and which are over, without reading their bodies.
CREATE INDEX document_expires ON document (shelf, expires_at);
