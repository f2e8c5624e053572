"""Reading topics: the planning of ranges, the readers of batches and streams."""
