"""Quotas: how many bytes and messages a second may be sent and received, by user, address or topic."""
