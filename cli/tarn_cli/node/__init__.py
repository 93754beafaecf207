"""Tarn on one machine: what `tarn up` plans, starts, supervises and stops."""
