"""HTTP/1.1 of a client, for whoever asks one server many times: connections kept alive, proxies, TLS, one exchange.

It owns connections and framing. It knows nothing of models: what is asked, what is answered and whether to ask again is
for others. `http1` and `target` are pure, `wire` is one connection, `lane` asks over it, `lanes` keeps them alive.
"""
