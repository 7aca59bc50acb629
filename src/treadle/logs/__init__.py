"""What operators read: who asked for what, how long it took and how it ended. Never what was said, and no secrets.

`trace` owns the ids that tie lines together, `log_format` how a line looks, `log_file` and `log_stream` where it goes,
`log_setup` what the environment asks for. Whoever has something to say uses `logging`, with fields as one mapping:
`logger.info("turn ended", {"status": status, "duration_ms": duration})`.
"""
