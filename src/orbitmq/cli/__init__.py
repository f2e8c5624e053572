"""The ``orbitmq`` command. Each command's module is imported only when that command runs."""
