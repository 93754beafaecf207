"""Runs a service as a process: start, stop, configuration, logs, traces, TLS."""
