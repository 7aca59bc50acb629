-- Another one in every copy that may lack events which were published: see `Store.epoch`.

CREATE TABLE epoch (id TEXT NOT NULL);

INSERT INTO epoch VALUES (lower(hex(randomblob(8))));
