"""Drive agent programs headless, all in the same way: start or resume, watch, cancel, queue."""
