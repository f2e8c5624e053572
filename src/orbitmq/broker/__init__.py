"""The broker: request handlers over the store, and the tables of topics, groups and offsets."""
