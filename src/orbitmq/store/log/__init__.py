"""The commit log: files, write batches, flush."""
