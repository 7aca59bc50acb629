"""Commands that a model runs: start them (`command_sessions`), look at their text (`command_shell`, `command_actions`,
`safety`), and say what came of them (`report`). Nothing here knows of threads, turns or approvals.

Import from the modules: most callers need one of them.
"""
