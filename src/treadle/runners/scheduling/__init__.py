"""Jobs over runners: a queue per session, and a journal from which they resume after a restart."""
