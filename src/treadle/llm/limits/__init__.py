"""Many threads on one key: how many requests go to a provider, how fast, and who is next.

`gate` decides, without I/O; `admission` waits. It knows nothing of what a request says, nor how it is sent.
"""
