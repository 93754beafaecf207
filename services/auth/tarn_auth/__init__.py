"""Auth: users, key pairs, and what callers may do (see README.md)."""
