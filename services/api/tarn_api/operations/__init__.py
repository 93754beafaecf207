"""The operations of the REST interface: one table, and one module for each family of handlers.

A handler is `async (context, at)` or, if its operation takes JSON, `async (context, at, body)`, with the types that are
generated from the document. It returns the document's type for the success, or a Starlette response.
"""
