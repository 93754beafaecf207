"""The benchmark of the whole system: a load client, a raw loop as yardstick, cases, a table."""
