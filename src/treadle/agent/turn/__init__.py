"""Turns, in reading order: how one begins (`turn_start`), the turn itself (`turn`), its loop (`turn_loop`), one
response of the model (`sampling`). The calls of the model are in `treadle.agent.tools`.
"""
