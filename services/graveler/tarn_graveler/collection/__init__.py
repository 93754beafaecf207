"""Garbage collection of a repository (docs/design/collection.md): its record, its roots, and the fences of builds."""
