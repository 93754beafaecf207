"""Views of history: differences between commits and branches, and the commit of each path."""
