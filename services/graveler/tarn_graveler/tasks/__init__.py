"""Long work as tasks: records, and their runs."""
