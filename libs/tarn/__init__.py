"""Tarn: git for data lakes."""
