"""How a service answers: handlers behind gRPC and in process, and the calls that run."""
