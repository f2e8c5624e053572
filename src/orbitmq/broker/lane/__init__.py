"""The compiled lane for plain sends and pulls: a received chunk of many frames in, responses out.

``lane`` walks the frames and decides; ``tables`` finds topics and pulls by name, ``properties`` reads
and completes a message's properties, ``responses`` encodes; ``layout`` is what all of them and their caller
agree on.
"""
