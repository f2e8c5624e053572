"""The web console: pages for a browser, made from the answers of :class:`orbitmq.admin.Admin`."""
