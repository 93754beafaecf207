"""Auth: users, key pairs and permissions (see README.md)."""
