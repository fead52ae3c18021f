-- One row per conversation: who it is with, who answers there, and when something was last said.
CREATE TABLE quell.chat_conversation (
    tenant text NOT NULL,
    key text NOT NULL,
    channel text NOT NULL,
    customer text NOT NULL,
    flow text,
    name text,
    -- Our own number, from which replies leave.
    address text,
    -- 'bot' or 'human'.
    state text NOT NULL,
    reason text,
    changed_at bigint NOT NULL,
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    preview text NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX chat_conversation_last ON quell.chat_conversation (last_at);
CREATE INDEX chat_conversation_customer ON quell.chat_conversation (customer);

-- What was said, in order. The id makes that nothing is written twice, however often it is tried.
CREATE TABLE quell.chat_entry (
    tenant text NOT NULL,
    key text NOT NULL,
    n bigint NOT NULL,
    id text NOT NULL,
    at bigint NOT NULL,
    role text NOT NULL,
    text text NOT NULL,
    about text NOT NULL,
    PRIMARY KEY (tenant, key, n)
);
CREATE UNIQUE INDEX chat_entry_id ON quell.chat_entry (tenant, key, id);
