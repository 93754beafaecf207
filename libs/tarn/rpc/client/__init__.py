"""How a client calls a service: its replicas, connections, streams and retries."""
