"""`treadle exec`: its command line, its turn on a server in this process, and what goes to which stream."""
