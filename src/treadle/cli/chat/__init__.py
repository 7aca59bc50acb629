"""`treadle chat`: a session in the terminal. `chat_command` reads the options and `program` runs it; `chat_session`
knows no terminal, and `screen` no server. `picker` is every list that one chooses from, also for other commands.
"""
