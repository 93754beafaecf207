"""Limits of repositories and users: their records, the usage, and the refusal of more (docs/design/quotas.md)."""
