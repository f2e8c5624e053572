"""Timer messages: delivery at any time (TimerMessageStore).

A message with a timer is not stored in its own topic but in the timer topic (``hook``, ``forms``). For each
message of that topic ``pending`` writes a unit into the timer log and chains it to the slot of its time in
the wheel (``timer_log``, ``units``, ``wheel``). These files are RocketMQ's, and are derived: after a crash
they are made again from the timer topic. A wait that is longer than the window of the wheel is cut: the
record says where (``placing``, ``rolling``), and when that time comes the message is stored once more for
the rest.

``service`` reads the slot whose time has begun and delivers its messages in the order of due time and place
in the log. A place in this order is a *mark*, and the progress is little more than one mark (``progress``): a
message that was looked at and is not above the mark is delivered. Progress is written after the delivery, so
after a crash it is late. The log is never late: each delivered message names the place of the message that it
delivers, so ``delivered`` finds in the log the deliveries that the progress lacks, and ``already_delivered``
leaves those messages out.

A slave reads the timer topic of its master's log all the time, and can deliver as soon as it leads
(``following``); the progress comes to it like other tables (``progress_table``). A message is taken back by
a second one for its slot (``recall``, ``recalled``). A clean stop leaves the files as a Java broker expects
them (``hand_over``, ``check_file``).
"""
