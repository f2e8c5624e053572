"""High availability: replication, quorum, acting master. Nothing of it is built yet."""
