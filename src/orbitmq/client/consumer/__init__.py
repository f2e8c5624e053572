"""Consumers: membership, rebalance, pulling, delivery, redelivery, offsets."""
