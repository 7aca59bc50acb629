"""`treadle threads`: the conversations that are stored here. Listing, reading, searching, exporting, archiving.

`ThreadLibrary` asks an app-server in this process, through the SDK's client; a `Page` makes text of a thread in some
format. Only the pictures that a model saw are read from the store: no request gives them.
"""
