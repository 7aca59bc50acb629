from backends import deadline, env, servers, start
from kit.user_home import user_home

__all__ = ["deadline", "env", "servers", "start", "user_home"]
