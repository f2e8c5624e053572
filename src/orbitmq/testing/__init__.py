"""For tests of users and of our own: a whole cluster in memory, on a virtual clock.

>>> from orbitmq.testing import run, simulated_runtime
"""

from orbitmq.runtime.simulated import SimulatedRuntime, run, simulated_runtime

__all__ = ["SimulatedRuntime", "run", "simulated_runtime"]
