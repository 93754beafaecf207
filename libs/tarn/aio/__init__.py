"""Concurrency primitives on asyncio: each stated once, tested once, used everywhere.

Rule of residence: what several modules need and what knows no store, no wire and no service. Each docstring says what
is guaranteed when a caller is cancelled, when the work fails and when it closes. Clocks and random generators are
passed in, so that the simulator plays these very classes.

- `task_set`: tasks that outlive the block that started them
- `batcher`: what tasks ask in one tick of the loop goes together
- `single_flight`: what several callers want at one time is fetched once
- `bounded_map`, `lru_cache`, `ttl_cache`: maps that forget
- `backoff`: pauses between attempts
- `deadlines`: many deadlines by one timer
- `close_guard`: counts uses, and closes when there are none
- `thread_work`: a pool of threads, whose work is waited for to its end also if the caller was cancelled
- `parallel`, `first_error`: the same work on many items; one error out of a group
- `futures`: outcomes that no caller waits for
"""
