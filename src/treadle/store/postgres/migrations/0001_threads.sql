-- Threads and what belongs to them, in the schema that the connection names. Columns are named as the fields of the
-- records in `contract.py`. Ids are compared as bytes. A text has no NUL: see `text_in` in `rows`.
--
-- No foreign keys: each row would lock the thread's row once more, which `check_writes` has locked already.

CREATE TABLE threads (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    recency_at bigint NOT NULL,
    cwd text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    model_provider text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    state bytea NOT NULL,
    originator text COLLATE "C",
    name text COLLATE "C",
    preview text COLLATE "C" NOT NULL,
    forked_from_id text COLLATE "C",
    archived boolean NOT NULL,
    listed boolean NOT NULL,
    parent_thread_id text COLLATE "C",
    -- The store that claimed the thread last, and whether it still holds it.
    owner text COLLATE "C",
    held boolean NOT NULL DEFAULT false,
    fence bigint NOT NULL DEFAULT 0,
    -- The last event that was pruned: its number must never be given again.
    pruned_seq bigint NOT NULL DEFAULT 0
);

CREATE INDEX threads_by_created_at ON threads (archived, created_at, id) WHERE listed;
CREATE INDEX threads_by_updated_at ON threads (archived, updated_at, id) WHERE listed;
CREATE INDEX threads_by_recency_at ON threads (archived, recency_at, id) WHERE listed;
CREATE INDEX threads_by_parent ON threads (parent_thread_id, created_at, id) WHERE parent_thread_id IS NOT NULL;
CREATE INDEX threads_held ON threads (owner) WHERE held;

CREATE TABLE turns (
    thread_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    started_at bigint,
    completed_at bigint,
    duration_ms bigint,
    error bytea,
    usage bytea,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX turns_by_id ON turns (thread_id, id);
CREATE INDEX turns_in_progress ON turns (thread_id) WHERE status = 'inProgress';

CREATE TABLE items (
    thread_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    turn bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    text text COLLATE "C",
    open boolean NOT NULL,
    started_at_ms bigint,
    completed_at_ms bigint,
    -- The words of the text as `message_words` has cut them.
    words tsvector,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX items_by_turn ON items (thread_id, turn, number);
CREATE INDEX items_by_id ON items (thread_id, id, number);
CREATE INDEX items_by_word ON items USING gin (words) WHERE words IS NOT NULL;

CREATE TABLE history (
    thread_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    turn bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (thread_id, number)
);

CREATE INDEX history_by_turn ON history (thread_id, turn);

CREATE TABLE compactions (
    thread_id text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    start bigint NOT NULL,
    PRIMARY KEY (thread_id, turn)
);

-- Events that were committed together share a row; `frames` has a newline between them.
CREATE TABLE events (
    thread_id text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    frames bytea NOT NULL,
    PRIMARY KEY (thread_id, last_seq)
);

CREATE TABLE queue (
    thread_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (thread_id, id)
);

-- Who has these threads open. A store that is alive holds the advisory lock (LOCKS, lock_key) on one connection, and
-- renews `beat` within its `lease`, by the clock of the database.
CREATE TABLE stores (
    id text COLLATE "C" NOT NULL PRIMARY KEY,
    server text COLLATE "C" NOT NULL,
    lock_key integer NOT NULL,
    lease interval NOT NULL,
    beat timestamptz NOT NULL
);

-- The number of the last group that a store has committed: one whose answer was lost is not made twice. Not in `stores`,
-- because a group that waits for a lock must not hold up the beat.
CREATE TABLE writers (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    written bigint NOT NULL
);

-- `id` is another one wherever events may have been lost that were published: see `Store.epoch`.
CREATE TABLE epoch (id text COLLATE "C" NOT NULL);

INSERT INTO epoch VALUES (replace(gen_random_uuid()::text, '-', ''));

-- With the timeline of the database, which changes when a standby takes over.
CREATE FUNCTION current_epoch() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT id || '.' || ltrim(left(pg_walfile_name(pg_current_wal_lsn()), 8), '0') FROM epoch
$$;

-- Threads in the memory of a store.
CREATE TABLE loaded (
    thread_id text COLLATE "C" NOT NULL,
    store_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (thread_id, store_id)
);

CREATE INDEX loaded_by_store ON loaded (store_id);

-- Whether a store may keep what it holds: it has shown a sign of life within its lease, and its lock is held. After a
-- restart of the database nobody has a lock yet: then there is a lease's time to come back.
CREATE FUNCTION is_alive(who text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT clock_timestamp() - greatest(beat, pg_postmaster_start_time()) < lease AND (
            beat < pg_postmaster_start_time() OR EXISTS (
                SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 1416782956 AND objid = lock_key::oid
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            )
        ) FROM stores WHERE id = who
    ), false)
$$;

-- Lock the threads that are written to, and see whether each may be: `checks` has arrays of thread, fence, the event
-- that is followed, the first event that is written, whether the thread may be made.
CREATE FUNCTION check_writes(me text, checks jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE one record;
BEGIN
    -- In one order, so that two groups never wait for each other.
    PERFORM 1 FROM threads WHERE id IN (SELECT c ->> 0 FROM jsonb_array_elements(checks) c) ORDER BY id FOR UPDATE;
    FOR one IN
        SELECT c ->> 0 AS thread_id, (c ->> 1)::bigint AS fence, (c ->> 2)::bigint AS after_seq,
            (c ->> 3)::bigint AS first_seq, (c ->> 4)::boolean AS makes_thread,
            threads.id, threads.fence AS now, threads.owner,
            greatest(pruned_seq, (SELECT max(last_seq) FROM events WHERE events.thread_id = threads.id), 0) AS last_seq
        FROM jsonb_array_elements(checks) c LEFT JOIN threads ON threads.id = c ->> 0
    LOOP
        IF one.id IS NULL AND NOT one.makes_thread THEN
            RAISE EXCEPTION USING errcode = 'TR001', detail = one.thread_id;
        ELSIF one.id IS NOT NULL AND (one.now, one.owner) IS DISTINCT FROM (one.fence, me) THEN
            RAISE EXCEPTION USING errcode = 'TR002', detail = one.thread_id,
                hint = coalesce((SELECT server FROM stores WHERE id = one.owner), '');
        ELSIF one.after_seq <> one.last_seq THEN
            RAISE EXCEPTION USING errcode = 'TR003', detail = one.thread_id, hint = one.after_seq::text;
        ELSIF one.first_seq <= one.last_seq THEN
            RAISE EXCEPTION USING errcode = 'TR004', detail = one.thread_id;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION delete_threads(ids text[]) RETURNS void LANGUAGE sql AS $$
    DELETE FROM turns WHERE thread_id = ANY (ids);
    DELETE FROM items WHERE thread_id = ANY (ids);
    DELETE FROM history WHERE thread_id = ANY (ids);
    DELETE FROM compactions WHERE thread_id = ANY (ids);
    DELETE FROM events WHERE thread_id = ANY (ids);
    DELETE FROM queue WHERE thread_id = ANY (ids);
    DELETE FROM loaded WHERE thread_id = ANY (ids);
    DELETE FROM threads WHERE id = ANY (ids);
$$;

-- Turns up to `last` with all that is in them; what runs in the source does not run in the copy.
CREATE FUNCTION copy_turns(from_id text, to_id text, last_turn bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM threads WHERE id = from_id) THEN
        RAISE EXCEPTION USING errcode = 'TR001', detail = from_id;
    ELSIF EXISTS (SELECT 1 FROM turns WHERE thread_id = to_id) THEN
        RAISE EXCEPTION USING errcode = 'TR005', detail = to_id;
    END IF;
    INSERT INTO turns SELECT to_id, number, id, CASE status WHEN 'inProgress' THEN 'interrupted' ELSE status END,
        started_at, completed_at, duration_ms, error, usage FROM turns WHERE thread_id = from_id AND number <= coalesce(last_turn, number);
    INSERT INTO items SELECT to_id, number, turn, id, type, data, text, open, started_at_ms, completed_at_ms, words
        FROM items WHERE thread_id = from_id AND turn <= coalesce(last_turn, turn);
    INSERT INTO history SELECT to_id, number, turn, data FROM history WHERE thread_id = from_id AND turn <= coalesce(last_turn, turn);
    INSERT INTO compactions SELECT to_id, turn, start FROM compactions WHERE thread_id = from_id AND turn <= coalesce(last_turn, turn);
END $$;

-- Write a group of callers' writes, all or nothing, in one statement: a server that is stopped in the middle holds no
-- lock. `group_number` is one more than that of the group before; false when this one has been committed already.
-- A writer whose last group may be made or not takes another name.
-- `steps` are arrays of a kind and its rows; a row names its bytes by their place in `bytes`.
CREATE FUNCTION write_group(me text, writer text, group_number bigint, steps jsonb, bytes bytea[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE step jsonb; rows jsonb; written_rows bigint;
BEGIN
    UPDATE writers SET written = group_number WHERE name = writer AND written = group_number - 1;
    IF NOT FOUND THEN
        IF EXISTS (SELECT 1 FROM writers WHERE name = writer AND written >= group_number) THEN
            RETURN false;
        END IF;
        RAISE EXCEPTION USING errcode = 'TR006', detail = writer;
    END IF;
    FOR step IN SELECT * FROM jsonb_array_elements(steps) LOOP
        rows := step -> 1;
        CASE step ->> 0
        WHEN 'check' THEN
            PERFORM check_writes(me, rows);
        WHEN 'threads' THEN
            INSERT INTO threads AS t
            SELECT r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint, (r ->> 3)::bigint, r ->> 4, r ->> 5, r ->> 6, r ->> 7,
                bytes[(r ->> 8)::int], r ->> 9, r ->> 10, r ->> 11, r ->> 12, (r ->> 13)::boolean, (r ->> 14)::boolean,
                r ->> 15, me
            FROM jsonb_array_elements(rows) r
            ON CONFLICT (id) DO UPDATE SET created_at = excluded.created_at, updated_at = excluded.updated_at,
                recency_at = excluded.recency_at, cwd = excluded.cwd, model = excluded.model,
                model_provider = excluded.model_provider, source = excluded.source, state = excluded.state,
                originator = excluded.originator, name = excluded.name, preview = excluded.preview,
                forked_from_id = excluded.forked_from_id, archived = excluded.archived, listed = excluded.listed,
                parent_thread_id = excluded.parent_thread_id
            WHERE t.owner = me;
            GET DIAGNOSTICS written_rows = ROW_COUNT;
            IF written_rows < jsonb_array_length(rows) THEN -- made by another store since the check
                RAISE EXCEPTION USING errcode = 'TR002', detail = rows -> 0 ->> 0, hint = '';
            END IF;
        WHEN 'turns' THEN
            INSERT INTO turns
            SELECT r ->> 0, (r ->> 1)::bigint, r ->> 2, r ->> 3, (r ->> 4)::bigint, (r ->> 5)::bigint, (r ->> 6)::bigint,
                bytes[(r ->> 7)::int], bytes[(r ->> 8)::int]
            FROM jsonb_array_elements(rows) r
            ON CONFLICT (thread_id, number) DO UPDATE SET id = excluded.id, status = excluded.status,
                started_at = excluded.started_at, completed_at = excluded.completed_at,
                duration_ms = excluded.duration_ms, error = excluded.error, usage = excluded.usage;
        WHEN 'items' THEN
            INSERT INTO items
            SELECT r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint, r ->> 3, r ->> 4, bytes[(r ->> 5)::int], r ->> 6,
                (r ->> 7)::boolean, (r ->> 8)::bigint, (r ->> 9)::bigint, (r ->> 10)::tsvector
            FROM jsonb_array_elements(rows) r
            ON CONFLICT (thread_id, number) DO UPDATE SET turn = excluded.turn, id = excluded.id, type = excluded.type,
                data = excluded.data, text = excluded.text, open = excluded.open,
                started_at_ms = excluded.started_at_ms, completed_at_ms = excluded.completed_at_ms,
                words = excluded.words;
        WHEN 'history' THEN
            INSERT INTO history
            SELECT r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint, bytes[(r ->> 3)::int]
            FROM jsonb_array_elements(rows) r;
        WHEN 'compactions' THEN
            INSERT INTO compactions
            SELECT r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint FROM jsonb_array_elements(rows) r
            ON CONFLICT (thread_id, turn) DO UPDATE SET start = excluded.start;
        WHEN 'events' THEN
            INSERT INTO events
            SELECT r ->> 0, (r ->> 1)::bigint, (r ->> 2)::bigint, bytes[(r ->> 3)::int]
            FROM jsonb_array_elements(rows) r;
        WHEN 'queue' THEN
            INSERT INTO queue
            SELECT r ->> 0, r ->> 1, (r ->> 2)::bigint, bytes[(r ->> 3)::int] FROM jsonb_array_elements(rows) r
            ON CONFLICT (thread_id, id) DO UPDATE SET position = excluded.position, data = excluded.data;
        WHEN 'drop items' THEN
            DELETE FROM items USING jsonb_array_elements(rows) r
            WHERE thread_id = r ->> 0 AND number = (r ->> 1)::bigint;
        WHEN 'drop queued' THEN
            DELETE FROM queue USING jsonb_array_elements(rows) r WHERE thread_id = r ->> 0 AND id = r ->> 1;
        WHEN 'cut' THEN
            DELETE FROM turns WHERE thread_id = rows ->> 0 AND number >= (rows ->> 1)::bigint;
            DELETE FROM items WHERE thread_id = rows ->> 0 AND turn >= (rows ->> 1)::bigint;
            DELETE FROM history WHERE thread_id = rows ->> 0 AND turn >= (rows ->> 1)::bigint;
            DELETE FROM compactions WHERE thread_id = rows ->> 0 AND turn >= (rows ->> 1)::bigint;
        WHEN 'copy' THEN
            PERFORM copy_turns(rows ->> 0, rows ->> 1, (rows ->> 2)::bigint);
        WHEN 'prune' THEN
            -- A row that is only partly pruned stays: reading it leaves out what is pruned.
            UPDATE threads SET pruned_seq = greatest(pruned_seq, least((rows ->> 1)::bigint,
                (SELECT max(last_seq) FROM events WHERE thread_id = rows ->> 0))) WHERE id = rows ->> 0
                AND EXISTS (SELECT 1 FROM events WHERE thread_id = rows ->> 0);
            DELETE FROM events WHERE thread_id = rows ->> 0 AND last_seq <= (rows ->> 1)::bigint;
        WHEN 'delete' THEN
            PERFORM delete_threads(ARRAY[rows ->> 0]);
        WHEN 'release' THEN
            UPDATE threads SET held = false WHERE id = rows ->> 0;
        WHEN 'loaded' THEN
            INSERT INTO loaded VALUES (rows ->> 0, me) ON CONFLICT DO NOTHING;
        WHEN 'unloaded' THEN
            DELETE FROM loaded WHERE thread_id = rows ->> 0 AND store_id = me;
        END CASE;
    END LOOP;
    RETURN true;
END $$;

-- `Store.claim`: the fence, and whether this store had the thread last.
CREATE FUNCTION claim_thread(me text, wanted text, known_fence bigint, OUT new_fence bigint, OUT ours boolean)
LANGUAGE plpgsql AS $$
DECLARE thread record;
BEGIN
    SELECT owner, held, fence INTO thread FROM threads WHERE id = wanted FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING errcode = 'TR001', detail = wanted;
    END IF;
    ours := thread.owner IS NOT DISTINCT FROM me;
    IF thread.held AND NOT ours AND is_alive(thread.owner) THEN
        RAISE EXCEPTION USING errcode = 'TR007', detail = wanted,
            hint = coalesce((SELECT server FROM stores WHERE id = thread.owner), '');
    END IF;
    new_fence := thread.fence + 1;
    UPDATE threads SET owner = me, held = true, fence = new_fence WHERE id = wanted;
    IF NOT (thread.held AND ours AND thread.fence = known_fence) THEN -- else nobody has lost track of its own turns
        UPDATE turns SET status = 'interrupted' WHERE thread_id = wanted AND status = 'inProgress';
    END IF;
END $$;

-- A thread and all that work for it, down to the last. One whose parent is gone stands for itself.
CREATE FUNCTION tree_of(wanted text) RETURNS TABLE (thread_id text) LANGUAGE sql STABLE AS $$
    WITH RECURSIVE tree (id) AS (
        SELECT one.id FROM threads one WHERE one.id = wanted
            AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = one.parent_thread_id)
        UNION ALL SELECT child.id FROM tree JOIN threads child ON child.parent_thread_id = tree.id
    )
    SELECT id FROM tree
$$;

-- `Store.delete_unused`.
CREATE FUNCTION delete_unused(wanted text, before bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE ids text[];
BEGIN
    ids := ARRAY(SELECT thread_id FROM tree_of(wanted));
    PERFORM 1 FROM threads WHERE id = ANY (ids) ORDER BY id FOR UPDATE;
    IF cardinality(ids) = 0 OR EXISTS (
        SELECT 1 FROM threads WHERE id = ANY (ids)
            AND (greatest(recency_at, updated_at) >= before OR (held AND is_alive(owner)))
    ) OR EXISTS (SELECT 1 FROM loaded WHERE thread_id = ANY (ids) AND is_alive(store_id)) THEN
        RETURN false;
    END IF;
    PERFORM delete_threads(ids);
    RETURN true;
END $$;
