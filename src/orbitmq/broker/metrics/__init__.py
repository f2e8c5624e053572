"""What a scrape by Prometheus reads, under the names of RocketMQ 5 where that has one."""
