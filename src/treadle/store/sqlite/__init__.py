"""Threads in SQLite: a file for all the processes of one machine, or a database in memory.

All that is SQL, and all that knows the file by name, is in this folder. `treadle.store` opens it.

    sqlite_base   the interface as jobs, and the store in memory
    file_store    the store on disk: its threads and queues
    writes        a group of jobs as one transaction
    queries       reading
    schema        opening and migrating the file
    owners        which stores are alive
    failures      errors of SQLite as `StoreError`
"""
