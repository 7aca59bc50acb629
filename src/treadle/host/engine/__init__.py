"""Turns on another agent's program: each is one run of it."""
