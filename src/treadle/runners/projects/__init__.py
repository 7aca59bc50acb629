"""Folders with short names, and their branches as git worktrees."""
