"""Concurrency primitives on asyncio: each is written and tested once, and used everywhere.

A primitive belongs here if several modules need it and it does not depend on a store, a wire format or a service.
Each docstring states the guarantees when a caller is cancelled, when the work fails, and at a close. Clocks and random
generators are passed in, so that the simulator runs the same classes.

- `task_set`: tasks that outlive the block that started them
- `batcher`: sends the requests of one tick of the loop together
- `single_flight`: concurrent callers share one piece of work
- `bounded_map`, `lru_cache`, `ttl_cache`: bounded maps
- `backoff`: pauses between attempts
- `deadlines`: many deadlines with one timer
- `close_guard`: counts uses, and closes when there are none
- `thread_work`: a pool of threads, whose work is waited for to its end also if the caller was cancelled
- `parallel`, `first_error`: the same work on many items; one error out of a group
- `futures`: outcomes that no caller waits for
"""
