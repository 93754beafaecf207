"""Backups of an installation beside writers, and their restores.

installation.py  reads a whole installation, in an order that loses nothing
repository.py    reads one repository
branches.py      reads branches and their uncommitted changes
history.py       reads reflogs and commits
pulls.py         reads pull requests
looks.py         reads what the list of drops says about branches that expire, and about reflogs
holding.py       holds garbage collections
creating.py      makes a backup
restoring.py     fills an empty store
"""
