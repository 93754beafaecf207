"""The lifecycle of blocks: garbage collection (docs/operate/gc.md). `tarn_spark` has another engine for large lakes.

A collection has two phases. *Mark* lists a namespace, and writes the blocks that are older than the cutoff and
that no root refers to into *quarantine*. *Sweep* reads the roots again, not before the grace time, and deletes the
blocks that were unreferenced both times. The rules that make this safe beside writers are in docs/design/collection.md.
"""
