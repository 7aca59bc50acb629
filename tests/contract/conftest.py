from backends import deadline, env, servers, start

__all__ = ["deadline", "env", "servers", "start"]
