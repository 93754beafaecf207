"""The audit log: who did what to what, from where, and with which outcome (docs/operate/audit.md).

`note` holds the facts that the code inside of a call notes, `record` is one line, `log` queues records and writes them
by a thread, `files` writes and rotates the files.
"""
