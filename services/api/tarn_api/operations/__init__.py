"""The operations of the REST interface: one table, and one module for each family of handlers.

A handler is `async (context, parameters)` or, if its operation takes JSON, `async (context, parameters, body)`, with the
types that are generated from the document. It returns the document's type for the success, or a Starlette response.
"""
