"""Service processes and the calls between them: clients, servers, wire format, logs and telemetry."""
