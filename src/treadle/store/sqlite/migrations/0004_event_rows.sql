-- Events that were committed together share a row, which has the numbers of the first and the last; `frames` has a
-- newline between them. What is there becomes rows of one.
--
-- With a rowid, as rows are larger now: without one, all that does not fit into a quarter of a page is given pages of
-- its own, and each thread writes to a page of its own where all of them could write to the last.

ALTER TABLE events RENAME TO single_events;

CREATE TABLE events (
    thread_id TEXT NOT NULL REFERENCES threads (id) ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    frames BLOB NOT NULL,
    UNIQUE (thread_id, last_seq)
);

INSERT INTO events (thread_id, first_seq, last_seq, frames)
SELECT thread_id, seq, seq, frame FROM single_events ORDER BY thread_id, seq;

DROP TABLE single_events;
