"""Who may do what: actions, policies, caller tokens and proofs."""
