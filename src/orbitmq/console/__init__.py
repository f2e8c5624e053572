"""The web console: pages over :class:`orbitmq.admin.Admin`, for a browser."""
