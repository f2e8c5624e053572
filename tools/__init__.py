"""Programs for those who work on OrbitMQ; they run in a checkout and are in no wheel."""
