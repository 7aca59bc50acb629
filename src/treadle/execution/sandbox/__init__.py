"""Confinement of commands: what they may read, write and reach, and how that is enforced.

`sandbox_modes` turns a mode of the app-server into a sandbox object, with `pinned_roots` and `protected_paths`;
`policy` turns that object into rules; `confinement` chooses a mechanism for them, which is `bubblewrap` or `landlock`.
Nothing is imported here: many servers never confine anything.
"""
