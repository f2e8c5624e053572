"""The brokers of one name, and which of them leads: deciders, and the component that drives them.

One broker of a name may deliver delayed messages, timers and the like at a time: the master, or a slave that
acts for it. Its right to do so ends by itself, at a time that only the answers of name servers extend
(``fence``); without name servers the other brokers can give it (``lease``). A slave acts when all rights of
brokers with a lower id are over: no name server has shown them for long enough, their ports refuse, or the
master itself has sent its end (``view``, ``probe``, ``master_word``). So two never lead at once, however the
network is cut.

A broker that begins, or that finds that it lacks something, is isolated: it serves no client until it has
asked the others. ``pre_online`` is the list of steps, for each member: copy what its log has more, make it
step down, take its tables; ``pre_online_service`` does them. Members that did not agree are looked at again
later (``consent``). Slaves with messages that this master lost may connect by themselves (``newcomers``,
``lost_log_owners``), a second broker with the same id is kept away (``duplicate_ids``), and slaves send each
other their deliveries as acting masters (``other_slaves``).

``membership`` does the I/O: it passes the answers of others and the time to the deciders, which do no I/O,
and changes the role of the broker as they decide. Queue locks follow the same idea with a rule of their own:
one slave, the heir, may grant locks at once because its leader promised to grant none without it (``heir``,
``lock_copy``, ``queue_locks``).
"""
