"""Files of the machine that Treadle runs on, and of others over the exec-server protocol.

    files_interface    `Files`, what users hold, its values and errors
      local_files        this machine
      remote_files       another one, by requests
    directories        what takes many steps: list, walk, copy, remove
    safe_open          opens the one file that was checked
    pinned_files       a few paths, resolved once
    file_watching      waits for what is missing

Nothing is imported here, so that a server loads only what it answers with.
"""
