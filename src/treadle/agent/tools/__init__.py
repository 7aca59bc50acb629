"""What a model can call. `tool` says what a tool is, `built_in` has ours, `toolbox` runs the calls of a turn.

What knows nothing of threads (command sessions, the patch language, images) is in `treadle.tools`.
"""
