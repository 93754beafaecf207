"""Limits of repositories and users: their records, what is used, and the refusal of more (docs/design/quotas.md)."""
