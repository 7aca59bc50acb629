-- Full-text search over messages. The triggers keep it in step whatever happens to an item: cut, copied or deleted.

CREATE VIEW message_texts AS SELECT key, text FROM items WHERE text IS NOT NULL;

CREATE VIRTUAL TABLE messages USING fts5 (
    text, content = 'message_texts', content_rowid = 'key', tokenize = 'unicode61 remove_diacritics 2'
);

INSERT INTO messages (rowid, text) SELECT key, text FROM message_texts;

CREATE TRIGGER items_inserted AFTER INSERT ON items WHEN new.text IS NOT NULL BEGIN
    INSERT INTO messages (rowid, text) VALUES (new.key, new.text);
END;

CREATE TRIGGER items_deleted AFTER DELETE ON items WHEN old.text IS NOT NULL BEGIN
    INSERT INTO messages (messages, rowid, text) VALUES ('delete', old.key, old.text);
END;

-- One trigger for both halves: the order of two would not be certain, and the old text has to go first.
CREATE TRIGGER items_changed AFTER UPDATE OF text ON items WHEN old.text IS NOT new.text BEGIN
    INSERT INTO messages (messages, rowid, text) SELECT 'delete', old.key, old.text WHERE old.text IS NOT NULL;
    INSERT INTO messages (rowid, text) SELECT new.key, new.text WHERE new.text IS NOT NULL;
END;
