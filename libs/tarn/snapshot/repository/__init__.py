"""Dumps of repositories: the file, and the transfer to and from graveler (docs/design/dump.md)."""
