"""From a ref to a commit or branch, now or at an earlier time."""
