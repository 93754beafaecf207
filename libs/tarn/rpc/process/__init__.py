"""How a service runs as a process: start, stop, configuration, logs, traces, TLS."""
