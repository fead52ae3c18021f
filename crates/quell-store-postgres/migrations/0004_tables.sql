-- Applications that keep tables in this schema, and which of their migrations they have.
CREATE TABLE quell.application (
  name    text   COLLATE "C" NOT NULL PRIMARY KEY,
  version bigint NOT NULL
);
