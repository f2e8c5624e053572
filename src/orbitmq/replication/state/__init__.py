"""The tables beside the log, and how brokers of one name share them."""
