"""`tarn fsck`: checks everything that an installation has stored, and reports missing and damaged objects.

    check.py          the order of the steps
    installation.py   objects of no repository          uploads.py, staged.py   KV → blocks
    history.py        refs → commits                    listings.py             commits → ranges → blocks
    references.py     which blocks are referred to      blocks.py               which blocks exist
    confirming.py     reads suspects again              state.py                the resumable state

Why it raises no false alarm although the installation changes while it reads. There is no snapshot;
instead:

- *Nothing that is immutable can be too new.* Ranges are durable before their metarange, the metarange
  before the commit's object, the object before its row, and the row before the ref. So a reader that
  starts from a ref finds everything beneath it, however fast the ref moves on; anything that is not found
  is missing.
- *Mutable records are read again before they are reported*, together with the records that led to them: a
  staged row, and whether its branch still names its token; a ref; a repository, which may have been
  deleted. A finding says that the damage was seen twice, and that it still matters.
- *References are gathered in the order in which they move*: uploads, then tokens, then refs and commits.
  An object that is completed or committed meanwhile is found in at least one of the two places. Every
  commit that has a row counts, whether or not a ref leads to it, so no moving or deleted ref hides one.
- *Blocks are listed after that.* A block that is older than the grace period and that no reference names
  is only a candidate: references are gathered a second time (immutable objects only as far as they are
  new), and blocks that they name are no longer candidates. A reference escapes both rounds only if it
  moves against their order, by a copy and a deletion of the original, once in each round. Hence the word
  "orphan" informs people and does not permit a deletion. Garbage collection has a protocol of its own for
  that.
- *Where references are hidden, no block is called an orphan*: the references of a damaged range, listing,
  commit or record in a repository cannot be known.

Not promised: that data written after the check began is checked.

The check only reads: it uses `tarn.kv.port.ReadKv` and `tarn.block.port.ReadBlocks`, which have no
writing methods.
"""
