"""Threads in SQLite: a file for all the processes of one machine, or a database in memory.

All that is SQL, and all that knows the file by name, is in this folder. `treadle.store` opens it.

    sqlite_store  the interface as jobs; the store on disk, with its threads and queues, and the one in memory
    writes        a group of jobs as one transaction
    queries       reading
    schema        opening and migrating the file
    owners        which stores are alive, and which threads they have in memory
    upkeep        backups, and a file made smaller
    failures      errors of SQLite as `StoreError`
"""
