"""Turns in this process, straight on a provider, with the tools of the host alone."""
