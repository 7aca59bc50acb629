"""`treadle chat`: a session in the terminal. `chat_command` is the door; `session` knows no terminal,
and `screen` no server.
"""
