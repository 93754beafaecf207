"""Cursors over ordered items, and over the rows of one partition."""
