"""Commands that a model runs: start them (`sessions`), look at their text (`shell`, `actions`, `safety`), and say what
came of them (`report`). Nothing here knows of threads, turns or approvals.

Import from the modules: most callers need one of them.
"""
