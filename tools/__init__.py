"""Programs for developers of OrbitMQ; they run in a checkout and are part of no wheel."""
