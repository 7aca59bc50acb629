"""Jobs over runners: a queue per session, and a journal from which they are taken up after a restart."""
