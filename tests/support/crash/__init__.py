"""Power failures: the states that a disk may have after one, decided from a recording of real system calls.

trace.py         the recorded changes of the disk, in order
recorder.py      records a folder for some time, with both of the following
os_calls.py      records the calls of the `os` module
sqlite_calls.py  records the sqlite library, through a VFS around its own
disk.py          the model: at a point of the trace, which changes are durable or may be
loss.py          decides which of the unsynced changes reach the disk

The production code runs unchanged, on real files. See docs/design/crash.md.
"""
