"""Threads in PostgreSQL: a database for the servers of many machines. `treadle.store` opens it.

    location        which database, and the settings of a connection
    schema          the tables, and how two versions of the program use them at once
    presence        which stores are alive: a lease by the database's clock, and a lock that ends with the connection
    writer          one connection that writes groups of callers' writes, each as one statement and exactly once
    queries         reading
    message_words   words of messages, cut in Python, so that every back end finds the same
    postgres_store  the interface
    failures        errors of PostgreSQL as `StoreError`

The rules of writing and of claims are functions in the database (`migrations`): each is one round trip, and a server
that is stopped in the middle of one holds no lock.
"""
