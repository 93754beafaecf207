"""Commits, names of commits, and differences between them."""
