"""Quotas: how many bytes and messages a second a user, an address or a topic may bring and take."""
