"""The drain of the journal: events leave the store for files in the bucket (docs/design/journal.md)."""
