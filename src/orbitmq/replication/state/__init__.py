"""The tables beside the log, and how brokers of one name share them.

A slave has its master's log, but not what a master keeps beside it: topics, groups, offsets, how far
delayed messages and timers were delivered, what was popped. Each change of such a table is an entry of the
broker's change feed, with the end of the log at that time. ``exchange`` sends the last value of every key
that changed to the other brokers (``outbox``, ``tables_sender``), and changes that arrive wait in the
``inbox`` until this broker's log has the messages that they refer to. A new link begins with the whole
tables. The tables of RocketMQ's brokers are requested by code instead (``codes``, ``copies``).

While one broker leads, its value counts, and nothing has to be decided. After a fault two brokers may have
changed the same key: the tables have no order of their own, so it is inferred. ``terms`` shows which broker
led last. A slave that acted sends that fact (``acting_term``); which keys it removed shows from those that it
had before (``seen_by_follower``). A master notes which slaves lack changes (``lagging_followers``), and after
a kill which keys it has changed before it could ask them (``unsynced_start``). ``merge_rules`` makes one rule
of that for each frame: take all, nothing, what is newer, or what is missing.

Changes that a broker has taken count only when they are on its disk, if a message would be lost without them
(``durable_tables``, ``acting_journal``). Decision 18 explains why tables are sent this way; decision 31 is
the proposal to give every key a stamp, which would replace the inferences, and ``shadow`` measures that
proposal in the simulation.
"""
