"""The compactor: folds uncommitted changes of branches before they slow listings down."""
