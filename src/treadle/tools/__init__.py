"""What tools are made of, without threads: command sessions, the patch language, images, specifications, arguments.

The tools themselves are in `treadle.agent.tools`. Nothing is loaded before it is used.
"""
