"""The history checker: decides whether a recorded history keeps the promises of the protocol."""
