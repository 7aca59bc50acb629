"""A small HTTP/1.1 client for many requests to one server: pooled connections, proxies, TLS.

It owns connections and framing, and knows nothing of models: what a request says, what the response means and whether
to retry is up to the caller. `http1`, `chunks`, `decoding` and `target` are pure; `http_protocol` is one open socket,
`http_connection` opens it and sends requests over it, and `http_pool` keeps idle connections alive.
"""
