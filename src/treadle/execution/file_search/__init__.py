"""Finding files by some letters of their path, in a process of its own.

A search looks at up to 200,000 names, and whoever computes in a thread of the server holds up every client meanwhile.
So the search is a small program, started by `search_process` for one query: `search_program` reads it, `search_walk`
looks at the names, `ignore` and `fuzzy` judge them. It can be ended at any time, and ends by itself. It runs without
site-packages, so nothing here but `search_process` imports more than the standard library.
"""
