"""The benchmark of the app-server: ours and the real one side by side, one client, one model that answers at once.

`python -m bench.app_server --help`. It measures and reports; nothing here asserts a time.
"""
