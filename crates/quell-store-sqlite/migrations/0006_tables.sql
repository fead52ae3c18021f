-- Applications that keep tables in this file, and which of their migrations they have.
CREATE TABLE application (
  name    TEXT    NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
