"""Long work as tasks: their runs."""
