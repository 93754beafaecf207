"""The last step of a rebuild: a lost metadata store is made anew from the bucket (docs/design/journal.md)."""
