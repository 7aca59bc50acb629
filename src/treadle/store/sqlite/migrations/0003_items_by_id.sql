-- An item is found by its id, which clients know, without reading the thread. The number is in it for the order.

CREATE INDEX items_by_id ON items (thread_id, id, number);
