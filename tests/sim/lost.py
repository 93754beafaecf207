"""The answer that never comes."""

__all__ = ["LostError"]


class LostError(Exception):
    """Nobody will ever tell the caller what became of its request."""
