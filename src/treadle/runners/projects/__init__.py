"""Folders under short names, and their branches as git worktrees."""
