from kit.user_home import user_home

__all__ = ["user_home"]
