"""Files of the machine that Treadle runs on, and of others over the exec-server protocol.

`files_interface` is what users hold (`Files`); `local_files` and `remote_files` implement it; `fs_handlers` is what the
exec-server answers `fs/*` requests with. Below them: `directories` and `tree_changes` do what takes many steps,
`safe_open` opens the one file that was checked, `pinned_files` keeps a few paths to what they led to, `file_watching`
waits for what is missing, `file_errors` has the words. Nothing is imported here, so that a server loads only what it
answers with.
"""
