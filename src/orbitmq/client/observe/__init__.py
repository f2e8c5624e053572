"""Message traces and OpenTelemetry, as hooks of the clients."""
