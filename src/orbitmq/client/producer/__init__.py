"""Producers: choosing a queue, sending, batching, transactions, request and reply."""
