"""Large builds in a process of their own (docs/design/heavy-process.md).

builder.py    `open_builder` opens the builder that the configuration selects; `ProcessBuilder` does small
              builds in process, the others in child processes
kept_process.py  one child process for as long as there is work for it
priority.py   how far a child steps back behind requests
weighing.py   decides which builds are small
worker.py     the parent's view of one child process
wire.py       the messages between parent and child
child.py      the child itself; `python -m tarn_graveler.heavy FD`
"""
