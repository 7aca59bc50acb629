"""A turn as a person sees it while it happens. `TurnRenderer` is for a terminal: blocks that stay, and lines that are
redrawn, with rich. `PlainTurn` is for what is no terminal: plain lines, without rich. `TurnHeader` has the facts before
and after a turn, `approval_question` what a person is asked.
"""
