"""The benchmark: our exec-server and the real one side by side, the same client for both. `python -m bench --help`.

It measures and reports; nothing here asserts a time.
"""
