-- Sessions and their messages. Columns are named as the fields of the records in `conversations.py`.

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    -- The runtime's thread, to be resumed there; none when the last one was retired.
    runtime TEXT,
    thread_id TEXT,
    -- How many messages there were before that thread began: it was told them, and is told them again.
    before_thread INTEGER NOT NULL DEFAULT 0,
    -- The store that writes to it, or did last.
    owner TEXT
);

CREATE INDEX sessions_by_updated_at ON sessions (updated_at, id);

-- `key` is there for full-text search, which needs a number to know a text by.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    data BLOB NOT NULL,
    -- Of a user message: `open` while its turn runs, then how that ended.
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (session_id, number)
);

CREATE INDEX messages_open ON messages (session_id) WHERE state = 'open';
