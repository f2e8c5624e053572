"""Monitoring of a server: an HTTP listener with health and metrics, exports, and tools for Prometheus."""
