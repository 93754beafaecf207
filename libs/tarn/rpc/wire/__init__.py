"""The wire format of calls, shared by both ends."""
