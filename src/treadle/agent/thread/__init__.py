"""Threads: what they are in memory (`thread`), what can be done to them (`thread_handle`), how they come into memory
(`thread_making`) and what they own: state, history for the model, authority, goal, queue, open requests to clients.
"""
