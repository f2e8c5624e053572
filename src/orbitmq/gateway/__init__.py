"""The gRPC door of a broker, for the clients of RocketMQ 5: HTTP/2, calls, the way to the broker's ports."""
