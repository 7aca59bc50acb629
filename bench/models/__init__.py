"""The benchmark of model clients: ours and the official ones read the same bytes, each in an interpreter of its own.

`python -m bench models --help`. It measures and reports; nothing here asserts a time.
"""
