"""Brings repositories over from lakeFS, with their history (docs/design/history-from-lakefs.md)."""
