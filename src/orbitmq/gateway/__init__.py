"""The gRPC door of a broker, for the clients of RocketMQ 5: HTTP/2, calls, and what they do with the broker's ports."""
