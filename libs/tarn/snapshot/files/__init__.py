"""What all snapshots have in common.

ranges.py       rows of a partition, and their digests
content.py      files that are named by their content
chunks.py       cuts rows into such files
manifest.py     the index and the manifest of a snapshot
target.py       where snapshots are kept: a folder
bucket.py       or a bucket
plain_files.py  reads a folder that a stranger may have filled
marks.py        keeps a prune and an unfinished snapshot apart
writing.py      writes the chunks that the target lacks, then index and manifest
stored.py       lists, opens and checks finished snapshots
pruning.py      removes old backups
work.py         concurrency, rate limit and progress
"""
