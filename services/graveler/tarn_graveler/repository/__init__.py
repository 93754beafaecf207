"""The life of repositories and branches: dumps, restores, recovery, and branches that expire."""
