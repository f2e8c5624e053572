"""Who the brokers of one name are, and which of them leads: deciders, and the component that drives them."""
