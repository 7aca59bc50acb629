"""How a turn looks on a terminal: what has happened as blocks that stay, what goes on as lines that are redrawn.

Events in, rich renderables out; nothing here reads, writes or waits. Imported by what draws on a terminal only.
"""
