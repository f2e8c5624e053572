"""Request handlers, one module for each family. A handler decodes, calls a service, answers."""
