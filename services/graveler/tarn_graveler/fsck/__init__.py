"""`tarn fsck`: looks at everything that an installation has stored, and says what is missing or wrong.

    check.py          the order of it all
    installation.py   what belongs to no repository        uploads.py, staged.py   KV → blocks
    history.py        refs → commits                       listings.py             commits → ranges → blocks
    references.py     which blocks are referred to         blocks.py               which blocks there are
    confirming.py     looks again at what seems lost       state.py                what is remembered

Why it raises no false alarm although everything moves while it reads. There is no snapshot; instead:

- *Nothing that is immutable can be too new.* Ranges are durable before their metarange, that before the
  commit's object, that before its row, that before the ref. So whoever reads downwards from a ref finds
  everything, however fast the ref moves on; what is not found is missing.
- *What is mutable is read again before it is told*, together with what led to it: a staged row, and whether
  its branch still names its token; a ref; a repository, which may have been deleted. A finding says that
  the damage was seen twice, and that it still matters.
- *References are gathered in the order in which they move*: uploads, then tokens, then refs and commits. An
  object that is completed or committed meanwhile is met in at least one of the two places. Every commit that
  has a row counts, whether a ref leads to it or not, so no moving or deleted ref hides one.
- *Blocks are listed after that.* A block that is older than the grace period and that no reference names is
  only a candidate: references are gathered a second time (what is immutable only as far as it is new), and
  what they name is taken back. A reference escapes both rounds only if it moves against their order, by a
  copy and a deletion of the original, once in each round; hence the word "orphan" is information for people
  and no licence to delete. Garbage collection has a protocol of its own for that.
- *Where references are hidden nothing is called an orphan*: in a repository with a damaged range, listing,
  commit or record, what it led to cannot be known.

Not promised: that what is written after the check began is looked at.

It only ever reads: it is written against `tarn.kv.reading.ReadKv` and `tarn.block.reading.ReadBlocks`, which
have nothing else.
"""
