"""Metrics and traces of a process: the table of all metrics, the page `/metrics`, exporters, spans."""
