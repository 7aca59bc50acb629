"""Turns on an app-server: ours as a child, in process or elsewhere, or the real codex."""
