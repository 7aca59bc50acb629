from backends import deadline, env, servers, start
from kit.login_shell import no_profiles

__all__ = ["deadline", "env", "no_profiles", "servers", "start"]
