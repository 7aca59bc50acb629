"""Turns in this process, directly on a provider, with only the tools of the host."""
