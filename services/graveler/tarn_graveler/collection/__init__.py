"""How an object becomes garbage and goes (docs/design/collection.md): roots, the cleaner of tokens, online deletion."""
