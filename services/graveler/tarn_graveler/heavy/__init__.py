"""Large builds in a process of their own (docs/design/heavy-process.md).

opening.py    what a service uses: the builder that its configuration asks for
builder.py    `ProcessBuilder`: small builds here, the others there; one child at a time
weighing.py   which builds are small
worker.py     one life of the child, seen from the parent
wire.py       what the two say to each other
child.py      the child itself; `python -m tarn_graveler.heavy FD`
"""
