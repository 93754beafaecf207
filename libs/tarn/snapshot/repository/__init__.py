"""Dumps of one repository, which its users make over graveler's rpcs, and their restores.

dumping.py   writes the pages of a dump as a snapshot, and reads the lines of one
transfer.py  moves lines between graveler and a snapshot; recovers a repository from its bucket
"""
