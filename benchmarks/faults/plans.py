"""The faults that can be played."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from benchmarks.faults import plays
from benchmarks.faults.place import ACTING, DEGRADING, MASTER, SLAVE, STRICT
from benchmarks.faults.scene import Fault, Times

SHORT = Times(7.0, 7.0, 6.0)
LONG = Times()
# Apache's clients request routes every 30 s.
PEER = Times(15.0, 40.0, 45.0)
FREEZES_S = (5, 15, 60)
SYNC_FLUSH: Mapping[str, str] = {**ACTING, "flushDiskType": "SYNC_FLUSH"}

FAULTS: tuple[Fault, ...] = (
    Fault("kill-master", "kill -9 of a master", plays.kill, short=True),
    Fault("stop-master", "clean stop of a master", plays.term),
    *(
        Fault(
            f"freeze-master-{s}", f"master frozen for {s} s", partial(plays.freeze, seconds=s), short=s == 5
        )
        for s in FREEZES_S
    ),
    Fault("kill-slave", "kill -9 of a slave", partial(plays.kill, name=SLAVE)),
    *(
        Fault(f"freeze-slave-{s}", f"slave frozen for {s} s", partial(plays.freeze, name=SLAVE, seconds=s))
        for s in FREEZES_S
    ),
    Fault("stop-slave", "clean stop of a slave", partial(plays.term, name=SLAVE)),
    *(
        Fault(
            f"{what}-acting", f"master killed, then its acting slave {done}", partial(plays.acting, how=how)
        )
        for what, done, how in (
            ("kill", "killed", plays.acting_killed),
            ("stop", "stopped", plays.acting_stopped),
        )
    ),
    *(
        Fault(
            f"freeze-acting-{s}",
            f"master killed, then its acting slave frozen for {s} s",
            partial(plays.acting, how=partial(plays.acting_frozen, seconds=s)),
        )
        for s in FREEZES_S
    ),
    Fault(
        "both-slave-first",
        "both killed, slave first; slave back first",
        partial(plays.both, first=SLAVE, second=MASTER, back=SLAVE),
    ),
    Fault(
        "both-master-first",
        "both killed, master first; master back first",
        partial(plays.both, first=MASTER, second=SLAVE, back=MASTER),
    ),
    Fault("kill-nameserver", "name server killed for 8 s", plays.name_server_killed),
    *(
        Fault(
            f"freeze-nameserver-{s}",
            f"name server frozen for {s} s",
            partial(plays.name_server_frozen, seconds=s),
        )
        for s in FREEZES_S
    ),
    Fault("stop-nameserver", "clean stop of the name server for 8 s", plays.name_server_stopped),
    Fault(
        "kill-one-nameserver",
        "one of two name servers killed for 8 s",
        plays.name_server_killed,
        name_servers=2,
    ),
    Fault(
        "freeze-one-nameserver",
        "one of two name servers frozen for 8 s",
        plays.name_server_frozen,
        name_servers=2,
    ),
    Fault(
        "cut-one-nameserver",
        "master cut off from one of two name servers",
        partial(plays.cut, links=("a0 ns",)),
        relayed=True,
        name_servers=2,
    ),
    Fault(
        "kill-master-one-nameserver",
        "kill -9 of a master while one of two name servers is frozen",
        plays.master_without_a_name_server,
        name_servers=2,
    ),
    Fault(
        "cut-names",
        "master cut off from the name server",
        partial(plays.cut, links=("a0 ns",)),
        relayed=True,
    ),
    Fault(
        "cut-names-answers",
        "the name server's answers do not reach the master",
        partial(plays.one_way, link="a0 ns", there=False),
        relayed=True,
    ),
    Fault(
        "cut-names-questions",
        "nothing of the master reaches the name server",
        partial(plays.one_way, link="a0 ns", there=True),
        relayed=True,
    ),
    Fault(
        "stall-names",
        "link to the name server stalls three times",
        partial(plays.stall, link="a0 ns"),
        relayed=True,
    ),
    Fault("slow-names", "link to the name server is slow", partial(plays.slow, link="a0 ns"), relayed=True),
    Fault("cut-ha", "slave cut off from its master", partial(plays.cut, links=("a0 ha",)), relayed=True),
    Fault(
        "cut-ha-acks",
        "acknowledgements of the slave are lost",
        partial(plays.one_way, link="a0 ha", there=True),
        relayed=True,
    ),
    Fault(
        "cut-ha-data",
        "nothing of the master reaches the slave",
        partial(plays.one_way, link="a0 ha", there=False),
        relayed=True,
    ),
    Fault(
        "stall-ha", "link to the slave stalls three times", partial(plays.stall, link="a0 ha"), relayed=True
    ),
    Fault("slow-ha", "link to the slave is slow", partial(plays.slow, link="a0 ha"), relayed=True),
    Fault(
        "cut-clients",
        "clients cut off from a master",
        partial(plays.cut, links=("a0 clients",)),
        relayed=True,
    ),
    Fault(
        "cut-clients-requests",
        "nothing of the clients reaches a master",
        partial(plays.one_way, link="a0 clients", there=True),
        relayed=True,
    ),
    Fault(
        "cut-clients-answers",
        "answers of a master do not reach the clients",
        partial(plays.one_way, link="a0 clients", there=False),
        relayed=True,
    ),
    Fault(
        "stall-clients",
        "link of the clients to a master stalls three times",
        partial(plays.stall, link="a0 clients"),
        relayed=True,
    ),
    Fault(
        "slow-clients",
        "link of the clients to a master is slow",
        partial(plays.slow, link="a0 clients"),
        relayed=True,
    ),
    Fault(
        "cut-master",
        "master cut off from everybody",
        partial(
            plays.cut,
            links=(
                "a0 clients",
                "a0 ha",
                "a0 ns",
            ),
        ),
        relayed=True,
    ),
    Fault(
        "cut-slave",
        "slave cut off from everybody",
        partial(
            plays.cut,
            links=(
                "a1 clients",
                "a1 ns",
                "a0 ha",
            ),
        ),
        relayed=True,
    ),
    Fault("full-master", "disk of a master full", partial(plays.full_disk, name=MASTER)),
    Fault("full-slave", "disk of a slave full", partial(plays.full_disk, name=SLAVE)),
    Fault(
        "slow-master",
        "flushes of a master take 0.5 s, SYNC_FLUSH",
        partial(plays.slow_disk, name=MASTER),
        slow_disks=True,
        settings=SYNC_FLUSH,
    ),
    Fault(
        "slow-slave",
        "quorum 2: flushes of a slave take 0.5 s, SYNC_FLUSH",
        partial(plays.slow_disk, name=SLAVE),
        slow_disks=True,
        settings={**SYNC_FLUSH, **DEGRADING},
    ),
    Fault("ahead", "kill -9 of a master; consumers are ahead of the slave", plays.ahead, relayed=True),
    Fault("new-topic", "kill -9 of a master; a topic is half a second old", plays.new_topic),
    Fault("new-slave", "slave back with an empty disk", partial(plays.new_disk, name=SLAVE)),
    Fault(
        "new-master", "master back with an empty disk", partial(plays.new_disk, name=MASTER), may_lose_s=0.2
    ),
    Fault("no-other-master", "master killed, the other group is down", plays.everything_of_a_group),
    Fault(
        "quorum-strict",
        "quorum 2, strict: slave killed",
        partial(plays.kill, name=SLAVE),
        settings=STRICT,
    ),
    Fault("quorum-kill-slave", "quorum 2: slave killed", partial(plays.kill, name=SLAVE), settings=DEGRADING),
    Fault(
        "quorum-freeze-slave",
        "quorum 2: slave frozen",
        partial(plays.freeze, name=SLAVE),
        settings=DEGRADING,
    ),
)
# The faults of the table that was measured with Apache RocketMQ, too.
TABLE = (
    "kill-master", "freeze-master-15", "stop-master", "both-slave-first", "new-topic", "no-other-master",
    "quorum-kill-slave", "quorum-freeze-slave", "quorum-strict",
)  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
