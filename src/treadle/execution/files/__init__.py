"""Files of the machine that Treadle runs on, and of others over the exec-server protocol.

`api` is what users hold (`Files`), `handlers` is what the exec-server answers `fs/*` requests with, `access` is what
both of them do their work through. Nothing is imported here, so that a server loads only what it answers with.
"""
