"""The gRPC door of a broker, for the clients of RocketMQ 5: HTTP/2, calls, and the services behind them."""
