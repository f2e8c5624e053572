"""What producers and consumers share: routes, name servers, the calls to brokers."""
