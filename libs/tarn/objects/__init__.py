"""Objects as every front moves them: bodies, entries, conditions, copies and uploads, without a word of a wire format.

A front speaks a protocol to clients (S3, REST), and graveler keeps the entries. What lies between is here: a body
becomes a durable block under a new address, the entry that names it is staged, and a block that no entry can name is
removed. Fronts parse requests, check permissions, and turn the `TarnError`s of this package into their own errors.

A front has one `ObjectBackend` for its life. Each request is a `Caller`. So a front stores a body, reads one, and
copies one:

    # Stores: checks the body while it arrives, stages the entry, and returns it.
    repository = await backend.repository(caller, "lake")
    body = await StreamedBody.begun(request.stream(), bytes_max=5 << 30, small=backend.bounds.small_body_bytes)
    headers = stored_headers("text/csv", {"a": "b"})
    entry = await store_object(backend, caller, repository, branch, path, body, headers)

    # Reads: finds the entry, decides on the headers of HTTP, and then opens just the bytes of the answer.
    found = await backend.graveler.lookup(backend.call(caller), "lake", ref, path)
    entry = unpack(found.entry)
    conditions = ReadConditions(if_none_match=request.headers.get("if-none-match"))
    told = judge_read(conditions, entry.etag, entry.mtime_us, entry.size, request.headers.get("range"))
    if told.status in (200, 206):
        key = block_key(found.storage_namespace, entry)
        async with told_if_erased(backend, caller, "lake", ref, path):
            chunks = await open_body(backend.blocks, key, told.start, told.length, 64 << 10, as_file=False)

    # Copies: by reference where that is safe, else by bytes; then stages the copy.
    opening = backend.opening_call(caller)
    repository = await backend.repositories.get(opening, "lake")  # before the source
    source = await find_source(backend, opening, "lake", ref, path, into="lake")
    entry, block = await copied(backend, caller, source, repository, branch)
    await stage(backend, caller, repository, branch, "copy", entry, block=block)

    # Replaces user metadata in place, or makes another change of the entry: see `rewriting`.
    await set_metadata(backend, caller, "lake", branch, path, {"owner": "sales"})

A front with multipart uploads of its own uses `uploads`. One whose clients write to the bucket themselves uses the
links of graveler (`tarn.client.links`) and the presigned URLs of the block store (`PresignsReads`, `PresignsWrites` and
`PresignsParts` of `tarn.block.port`), if it offers them.
"""
