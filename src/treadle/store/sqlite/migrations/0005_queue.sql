-- Messages that wait for a turn of their own, in the order of `position`.

CREATE TABLE queue (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    position INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (thread_id, id)
) WITHOUT ROWID;
