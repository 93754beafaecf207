"""The audit log: who did what to what, from where, and with which outcome (docs/operate/audit.md).

`note` is what the code inside of a call tells about it, `record` is one line, `log` queues records and writes them by
a thread, `files` writes and rotates the files.
"""
