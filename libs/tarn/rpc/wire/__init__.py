"""The form of calls on the wire, on which both ends agree."""
