"""How a turn looks on a terminal: what has happened as blocks that stay, what goes on as lines that are redrawn.

Events in, rich renderables out. `turn_view` is the same for what is no terminal: plain lines, without rich.
"""
