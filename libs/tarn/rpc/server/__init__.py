"""The server side of calls: handlers behind gRPC and in process, and the running calls."""
