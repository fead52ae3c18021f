-- Sessions of coding agents and what was said in them. Times are milliseconds since 1970, from the transcript's own
-- stamps or, for hook events, from the store's clock.
CREATE TABLE quell.transcripts_session (
  id           TEXT NOT NULL PRIMARY KEY,
  project      TEXT,                       -- the folder in which it was first seen; an agent may go elsewhere later
  cwd          TEXT,                       -- where it was last
  title        TEXT,
  title_rank   INTEGER NOT NULL DEFAULT 0, -- a title given by a person outranks one that was made up
  status       TEXT NOT NULL,
  began_at     INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  transcript   TEXT,
  prompt_id    TEXT,                       -- the latest
  messages     INTEGER NOT NULL DEFAULT 0,
  prompts      INTEGER NOT NULL DEFAULT 0,
  input_tokens          INTEGER NOT NULL DEFAULT 0,
  output_tokens         INTEGER NOT NULL DEFAULT 0,
  cache_creation_tokens INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens     INTEGER NOT NULL DEFAULT 0,
  problem      TEXT                        -- why its transcript is not read, for people
) STRICT;
CREATE INDEX transcripts_session_last ON transcripts_session (last_at);
CREATE INDEX transcripts_session_project ON transcripts_session (project, last_at);

-- Every hook event once.
CREATE TABLE quell.transcripts_event (
  id         TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL,
  name       TEXT NOT NULL,
  at         INTEGER NOT NULL,
  prompt_id  TEXT,
  payload    TEXT NOT NULL
) STRICT;
CREATE INDEX transcripts_event_session ON transcripts_event (session_id, at);

CREATE TABLE quell.transcripts_prompt (
  id         TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL,
  at         INTEGER NOT NULL,
  text       TEXT                          -- empty until somebody knows it
) STRICT;
CREATE INDEX transcripts_prompt_session ON transcripts_prompt (session_id, at);

-- How far a transcript was read, and what it was.
CREATE TABLE quell.transcripts_file (
  path       TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL,
  position   TEXT NOT NULL,                -- offset and identity, as JSON
  version    INTEGER NOT NULL,             -- raised by each pass: two that read at once are told apart
  lines      INTEGER NOT NULL,
  malformed  INTEGER NOT NULL,
  unknown    INTEGER NOT NULL,
  read_at    INTEGER NOT NULL
) STRICT;
CREATE INDEX transcripts_file_session ON transcripts_file (session_id);

CREATE TABLE quell.transcripts_message (
  n          INTEGER PRIMARY KEY,          -- the order in which lines were read
  uuid       TEXT NOT NULL UNIQUE,         -- unique over all sessions: a fork repeats lines of its parent
  session_id TEXT NOT NULL,
  parent     TEXT,
  role       TEXT NOT NULL,
  at         INTEGER,
  prompt_id  TEXT,
  is_prompt  INTEGER NOT NULL,
  sidechain  INTEGER NOT NULL,
  meta       INTEGER NOT NULL,
  agent_id   TEXT,
  api_id     TEXT,
  model      TEXT,
  text       TEXT NOT NULL,
  thinking   TEXT NOT NULL,
  tools      TEXT NOT NULL,                -- one line for each tool used, for people and for the search
  results    INTEGER NOT NULL,
  failures   INTEGER NOT NULL
) STRICT;
CREATE INDEX transcripts_message_session ON transcripts_message (session_id, n);

-- One answer of the model is several lines with one id, and its usage counts once: the last line's.
CREATE TABLE quell.transcripts_usage (
  session_id            TEXT NOT NULL,
  api_id                TEXT NOT NULL,
  input_tokens          INTEGER NOT NULL,
  output_tokens         INTEGER NOT NULL,
  cache_creation_tokens INTEGER NOT NULL,
  cache_read_tokens     INTEGER NOT NULL,
  PRIMARY KEY (session_id, api_id)
) STRICT, WITHOUT ROWID;

-- Lines of a type that nobody knows yet, as they were.
CREATE TABLE quell.transcripts_raw (
  path       TEXT NOT NULL,
  at_byte    INTEGER NOT NULL,
  session_id TEXT NOT NULL,
  type       TEXT,
  line       TEXT NOT NULL,
  PRIMARY KEY (path, at_byte)
) STRICT, WITHOUT ROWID;
CREATE INDEX transcripts_raw_session ON transcripts_raw (session_id);

-- Sessions that were forgotten, and until when: their files may still be there, and are not read again.
CREATE TABLE quell.transcripts_forgotten (
  session_id TEXT NOT NULL PRIMARY KEY,
  until      INTEGER NOT NULL
) STRICT;

CREATE VIRTUAL TABLE quell.transcripts_search USING fts5 (
  text, thinking, tools,
  content = 'transcripts_message', content_rowid = 'n', tokenize = 'unicode61 remove_diacritics 2'
);
INSERT INTO quell.transcripts_search (transcripts_search, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER quell.transcripts_message_put AFTER INSERT ON transcripts_message BEGIN
  INSERT INTO transcripts_search (rowid, text, thinking, tools) VALUES (new.n, new.text, new.thinking, new.tools);
END;
CREATE TRIGGER quell.transcripts_message_gone AFTER DELETE ON transcripts_message BEGIN
  INSERT INTO transcripts_search (transcripts_search, rowid, text, thinking, tools)
  VALUES ('delete', old.n, old.text, old.thinking, old.tools);
END;
