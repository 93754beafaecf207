"""graveler: refs, commits and staged entries; the only service that implements the branch protocol."""
