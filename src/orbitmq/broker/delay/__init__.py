"""Messages that are due later: the delay levels and the service that delivers them."""
