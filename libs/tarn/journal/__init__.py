"""The journal in the bucket: its files, its epochs, the feed of changes, and the state that a rebuild makes of them.

docs/design/journal.md has the rules, docs/formats/journal.md the files. This package reads and writes the bucket only.
It knows nothing of a running service, nor how events come into the metadata store.
"""
