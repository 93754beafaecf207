"""The typed async client that the gateway, the CLI and the jobs use."""
