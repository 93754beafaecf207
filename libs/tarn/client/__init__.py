"""The typed async client of auth and graveler, which the gateway, the CLI and the jobs use."""
