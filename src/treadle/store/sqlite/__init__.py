"""Threads in SQLite: a file for all the processes of one machine, or a database in memory.

All that is SQL, and all that knows the file by name, is in this folder. `treadle.store.backends` opens it.
"""
