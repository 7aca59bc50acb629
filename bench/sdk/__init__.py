"""The benchmark of the SDK: ours and the official one side by side, each in an interpreter of its own.

`python -m bench sdk --help`. It measures and reports; nothing here asserts a time.
"""
