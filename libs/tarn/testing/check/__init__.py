"""Decides whether a history keeps the promises of the protocol."""
