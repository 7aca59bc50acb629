-- The thread that a sub-agent's thread was made by, and the threads of a parent.

ALTER TABLE threads ADD COLUMN parent_thread_id TEXT;

CREATE INDEX threads_by_parent ON threads (parent_thread_id, created_at, id) WHERE parent_thread_id IS NOT NULL;
