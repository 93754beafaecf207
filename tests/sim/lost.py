"""The error for a request without an answer."""

__all__ = ["LostError"]


class LostError(Exception):
    """The caller gets no answer, so the outcome of its request stays unknown to it."""
