"""Power failures: what a disk may hold after one, decided from a recording of real system calls.

trace.py         what was done to the disk, in order
recorder.py      records a folder: both of the following, from and to a point in time
os_calls.py      the calls of the `os` module
sqlite_calls.py  what the sqlite library does, through a VFS around its own
disk.py          the model: at a point of the trace, what is durable and what may be
loss.py          which of the rest reaches the disk

The production code runs unchanged, on real files. See docs/design/crash.md.
"""
