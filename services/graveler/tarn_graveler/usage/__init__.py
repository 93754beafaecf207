"""What repositories and users use, and the refusal of more (docs/design/quotas.md)."""
