"""One YAML file, environment variables, and the table of every key."""
