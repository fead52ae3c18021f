-- Sessions of coding agents and what was said in them. Times are milliseconds since 1970, from the transcript's own
-- stamps or, for hook events, from the store's clock.
CREATE TABLE quell.transcripts_session (
  id           text NOT NULL PRIMARY KEY,
  project      text,                       -- the folder in which it was first seen; an agent may go elsewhere later
  cwd          text,                       -- where it was last
  title        text,
  title_rank   bigint NOT NULL DEFAULT 0, -- a title given by a person outranks one that was made up
  status       text NOT NULL,
  began_at     bigint NOT NULL,
  last_at      bigint NOT NULL,
  transcript   text,
  prompt_id    text,                       -- the latest
  messages     bigint NOT NULL DEFAULT 0,
  prompts      bigint NOT NULL DEFAULT 0,
  input_tokens          bigint NOT NULL DEFAULT 0,
  output_tokens         bigint NOT NULL DEFAULT 0,
  cache_creation_tokens bigint NOT NULL DEFAULT 0,
  cache_read_tokens     bigint NOT NULL DEFAULT 0,
  problem      text                        -- why its transcript is not read, for people
);
CREATE INDEX transcripts_session_last ON quell.transcripts_session (last_at);
CREATE INDEX transcripts_session_project ON quell.transcripts_session (project, last_at);

-- Every hook event once.
CREATE TABLE quell.transcripts_event (
  id         text NOT NULL PRIMARY KEY,
  session_id text NOT NULL,
  name       text NOT NULL,
  at         bigint NOT NULL,
  prompt_id  text,
  payload    text NOT NULL
);
CREATE INDEX transcripts_event_session ON quell.transcripts_event (session_id, at);

CREATE TABLE quell.transcripts_prompt (
  id         text NOT NULL PRIMARY KEY,
  session_id text NOT NULL,
  at         bigint NOT NULL,
  text       text                          -- empty until somebody knows it
);
CREATE INDEX transcripts_prompt_session ON quell.transcripts_prompt (session_id, at);

-- How far a transcript was read, and what it was.
CREATE TABLE quell.transcripts_file (
  path       text NOT NULL PRIMARY KEY,
  session_id text NOT NULL,
  position   text NOT NULL,                -- offset and identity, as JSON
  version    bigint NOT NULL,             -- raised by each pass: two that read at once are told apart
  lines      bigint NOT NULL,
  malformed  bigint NOT NULL,
  unknown    bigint NOT NULL,
  read_at    bigint NOT NULL
);
CREATE INDEX transcripts_file_session ON quell.transcripts_file (session_id);

CREATE TABLE quell.transcripts_message (
  n          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which lines were read
  uuid       text NOT NULL UNIQUE,         -- unique over all sessions: a fork repeats lines of its parent
  session_id text NOT NULL,
  parent     text,
  role       text NOT NULL,
  at         bigint,
  prompt_id  text,
  is_prompt  bigint NOT NULL,
  sidechain  bigint NOT NULL,
  meta       bigint NOT NULL,
  agent_id   text,
  api_id     text,
  model      text,
  text       text NOT NULL,
  thinking   text NOT NULL,
  tools      text NOT NULL,                -- one line for each tool used, for people and for the search
  results    bigint NOT NULL,
  failures   bigint NOT NULL,
  -- A vector has a bound in bytes; what is beyond it is kept and not found by words.
  search     tsvector GENERATED ALWAYS AS (
    to_tsvector('simple', left(text, 100000)) || to_tsvector('simple', left(thinking, 100000))
    || to_tsvector('simple', left(tools, 20000))) STORED
);
CREATE INDEX transcripts_message_search ON quell.transcripts_message USING gin (search);
CREATE INDEX transcripts_message_session ON quell.transcripts_message (session_id, n);

-- One answer of the model is several lines with one id, and its usage counts once: the last line's.
CREATE TABLE quell.transcripts_usage (
  session_id            text NOT NULL,
  api_id                text NOT NULL,
  input_tokens          bigint NOT NULL,
  output_tokens         bigint NOT NULL,
  cache_creation_tokens bigint NOT NULL,
  cache_read_tokens     bigint NOT NULL,
  PRIMARY KEY (session_id, api_id)
);

-- Lines of a type that nobody knows yet, as they were.
CREATE TABLE quell.transcripts_raw (
  path       text NOT NULL,
  at_byte    bigint NOT NULL,
  session_id text NOT NULL,
  type       text,
  line       text NOT NULL,
  PRIMARY KEY (path, at_byte)
);
CREATE INDEX transcripts_raw_session ON quell.transcripts_raw (session_id);

-- Sessions that were forgotten, and until when: their files may still be there, and are not read again.
CREATE TABLE quell.transcripts_forgotten (
  session_id text NOT NULL PRIMARY KEY,
  until      bigint NOT NULL
);
