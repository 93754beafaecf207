"""graveler: refs, commits and staged entries; the one service that knows the branch protocol."""
