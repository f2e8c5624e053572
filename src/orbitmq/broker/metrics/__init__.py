"""The metrics that Prometheus scrapes, under RocketMQ 5's names where it has them."""
