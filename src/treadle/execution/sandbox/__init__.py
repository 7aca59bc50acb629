"""Confinement of commands: what they may read, write and reach, and how that is enforced.

    sandbox_modes      a mode of the app-server, or a profile of the user, as a sandbox object
      sandbox_roots      the directories that it opens, what in them is protected, and the hidden home
      profile_sandbox    the rules of a profile
      profile_rules      the entries that a profile comes to, here and now
    policy             the sandbox object as rules by path
    confinement        which mechanism this machine has, and a command under it
      bubblewrap         mounts checks what it mounted; command has the program that runs last inside
      landlock           launcher is its program
      seccomp            the system-call filter of both

Nothing is imported here: many servers never confine anything.
"""
