"""The compiled fast path for plain sends and pulls: a received chunk of many frames in, responses out.

``frames`` walks the frames; ``sends`` and ``pulls`` decide on them and do the work. These two use
``fields``, which reads a header's values, ``names``, which finds topics and pulls by name, ``properties``,
which reads and completes a message's properties, and ``responses``, which encodes. ``layout`` has the numbers
that these modules and their caller share.
"""
