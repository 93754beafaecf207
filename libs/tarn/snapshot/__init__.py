"""Backups of an installation's metadata, made while Tarn is in use (docs/design/backup.md).

chunks.py        rows as files that are named by their content
manifest.py      the index and the manifest of a backup
target.py        where backups are kept: a folder
bucket.py        or a bucket
marks.py         keeps a prune and an unfinished backup apart
writing.py       writes the chunks that the target lacks
order.py         the order in which all kinds of records are copied
installation.py  reads a whole installation, in an order that loses nothing
repository.py    reads one repository
branches.py      reads branches and their uncommitted changes
history.py       reads reflogs and commits
pulls.py         reads pull requests
looks.py         reads what the list of drops says about branches that expire, and about reflogs
holding.py       holds garbage collections
creating.py      makes a backup
stored.py        lists and opens backups
restoring.py     fills an empty store
pruning.py       removes old backups
"""
