"""The soak: one app-server under mixed work for a long time, and what it holds, loses and doubles.

`python -m bench soak --help`. It measures and reports; nothing here asserts a time or a size.
"""
