"""`treadle threads`: the conversations that are kept here. Listing, reading, searching, exporting, putting away.

All that it knows of threads it asks of an app-server in this process; nothing here reaches into the store.
"""
