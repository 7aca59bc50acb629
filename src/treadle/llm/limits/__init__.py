"""Many threads on one API key: how many requests go to a provider, how fast, and which is next.

`rate_limiter` decides, without I/O; `admission` does the waiting. Neither knows what a request says or how it is sent.
"""
