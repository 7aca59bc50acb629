from backends import env, servers, start

__all__ = ["env", "servers", "start"]
