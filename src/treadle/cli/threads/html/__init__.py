"""A thread as one HTML page that needs nothing else: no requests, no scripts. It can be sent to a colleague."""
