"""Who is connected: producers and consumers by group, and the queue locks of orderly groups."""
