"""What a model can call. `tool` says what a tool is, `built_in` lists ours, `toolbox` runs the calls of a turn.

Each tool, or family of tools, is a module: its specification, its arguments and what it does. What knows nothing of
threads (command sessions, the patch language, images) is in `treadle.tools`.
"""
