"""Concurrency primitives on asyncio: each stated once, tested once, used everywhere.

Rule of residence: what is needed by two modules and knows no store, no wire and no service. Each docstring says
what is guaranteed when a caller is cancelled, when the work fails and when it closes. Clocks and random
generators are passed in, so that the simulator plays these very classes.
"""
