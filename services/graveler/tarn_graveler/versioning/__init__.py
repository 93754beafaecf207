"""Merge, revert and cherry-pick: commits that are made from commits (docs/design/versioning.md)."""
