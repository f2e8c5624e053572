"""``orbitmq mqadmin NAME``: commands of RocketMQ's mqadmin, with its flags and its output."""
