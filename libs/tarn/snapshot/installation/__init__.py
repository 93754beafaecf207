"""Backups of an installation beside writers, and their restores."""
