"""The client side of calls: replicas, connections, streams and retries."""
