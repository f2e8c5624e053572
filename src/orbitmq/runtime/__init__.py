"""The one seam to the machine: clock, randomness, files, network and threads.

Nothing outside this room reads the time, draws a random number, opens a file or a socket, or starts a
thread. :func:`system_runtime` makes the real machine; :func:`orbitmq.testing.simulated_runtime` makes one in
memory, with a virtual clock, on which the store, the servers and the clients run unchanged.
"""

from orbitmq.runtime.seam import Clock, Files, Listener, Network, Runtime, Segment, Threads
from orbitmq.runtime.system import system_runtime

__all__ = ["Clock", "Files", "Listener", "Network", "Runtime", "Segment", "Threads", "system_runtime"]
