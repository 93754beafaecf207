"""Who may call: grants of callers (`access`), the gate before each handler (`permits`), and calls of services."""
