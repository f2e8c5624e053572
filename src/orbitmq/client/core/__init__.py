"""The core shared by producers and consumers: routes, name servers, the calls to brokers."""
