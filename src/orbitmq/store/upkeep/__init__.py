"""Background work of a store: flush passes, checkpoints, retention."""
