-- Threads and what belongs to them. Columns are named as the fields of the records in `contract.py`.

CREATE TABLE threads (
    id TEXT NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    recency_at INTEGER NOT NULL,
    cwd TEXT NOT NULL,
    model TEXT NOT NULL,
    model_provider TEXT NOT NULL,
    source TEXT NOT NULL,
    state BLOB NOT NULL,
    originator TEXT,
    name TEXT,
    preview TEXT NOT NULL,
    forked_from_id TEXT,
    archived INTEGER NOT NULL,
    listed INTEGER NOT NULL,
    -- The store that claimed the thread last, and whether it still holds it.
    owner TEXT,
    held INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    -- The last event that was pruned: its number must never be given again.
    pruned_seq INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX threads_by_created_at ON threads (archived, created_at, id) WHERE listed = 1;
CREATE INDEX threads_by_updated_at ON threads (archived, updated_at, id) WHERE listed = 1;
CREATE INDEX threads_by_recency_at ON threads (archived, recency_at, id) WHERE listed = 1;

CREATE TABLE turns (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    status TEXT NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    duration_ms INTEGER,
    error BLOB,
    usage BLOB,
    PRIMARY KEY (thread_id, number)
) WITHOUT ROWID;

CREATE INDEX turns_by_id ON turns (thread_id, id);
CREATE INDEX turns_in_progress ON turns (thread_id) WHERE status = 'inProgress';

-- `key` is there for full-text search, which needs a number to know a text by.
CREATE TABLE items (
    key INTEGER PRIMARY KEY,
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    id TEXT NOT NULL,
    type TEXT NOT NULL,
    data BLOB NOT NULL,
    text TEXT,
    open INTEGER NOT NULL,
    started_at_ms INTEGER,
    completed_at_ms INTEGER,
    UNIQUE (thread_id, number)
);

CREATE INDEX items_by_turn ON items (thread_id, turn, number);

CREATE TABLE history (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (thread_id, number)
) WITHOUT ROWID;

CREATE INDEX history_by_turn ON history (thread_id, turn);

CREATE TABLE compactions (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    turn INTEGER NOT NULL,
    start INTEGER NOT NULL,
    PRIMARY KEY (thread_id, turn)
) WITHOUT ROWID;

CREATE TABLE events (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    frame BLOB NOT NULL,
    PRIMARY KEY (thread_id, seq)
) WITHOUT ROWID;
