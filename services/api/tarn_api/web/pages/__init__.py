"""The pages, one module for each family: `async (context, at)`, or `async (context, at, form)` for what is sent."""
