"""Snapshots: copies of metadata in one format, of three scopes (docs/formats/snapshot.md).

records.py     the table of all records: who owns each, which scopes copy it, in which order, and how
files/         what all have in common: chunks, index, manifest, targets, marks, checks, prunes
installation/  backups of an installation, made while it is in use (docs/design/backup.md)
store/         all rows of a store that is closed meanwhile: dump, load, migrate, compare (docs/operate/migrate.md)
repository/    dumps of one repository, which its users make over graveler's rpcs (docs/design/dump.md)
"""
