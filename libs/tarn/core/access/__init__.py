"""Access control: actions, policies, caller tokens and proofs."""
