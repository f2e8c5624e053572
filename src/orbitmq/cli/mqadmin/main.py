"""``orbitmq mqadmin NAME ...``: finds the command, parses its flags, prints its lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from orbitmq import _streams
from orbitmq.cli.app import run_async
from orbitmq.cli.failures import EXIT_OK, EXIT_USAGE, UsageError, first_of, report
from orbitmq.cli.mqadmin.access import ACCESS
from orbitmq.cli.mqadmin.accounts import ACCOUNTS
from orbitmq.cli.mqadmin.changes import CHANGES
from orbitmq.cli.mqadmin.groups import GROUPS
from orbitmq.cli.mqadmin.looks import LOOKS
from orbitmq.cli.mqadmin.messages import MESSAGES
from orbitmq.cli.mqadmin.offers import Flag, Offer, Options, Tool
from orbitmq.cli.mqadmin.upkeep import UPKEEP
from orbitmq.cli.where import Servers, servers_of

OFFERED: dict[str, Offer] = dict(
    sorted({**LOOKS, **GROUPS, **CHANGES, **UPKEEP, **ACCESS, **ACCOUNTS, **MESSAGES}.items())
)
# Commands of mqadmin for which this program has a command of another name, or none (empty).
ELSEWHERE = {
    "DecodeMessageId": "message get",
    "addBroker": "",
    "allocateMQ": "group show",
    "brokerConsumeStats": "top --once",
    "checkMsgSendRT": "bench",
    "checkRocksdbCqWriteProgress": "",
    "cleanBrokerMetadata": "",
    "clusterRT": "bench",
    "consumer": "client show",
    "consumerStatus": "client show",
    "dumpCompactionLog": "",
    "electMaster": "",
    "exportConfigs": "broker config get",
    "exportMetadata": "export",
    "exportMetadataInRocksDB": "",
    "exportMetrics": "broker status",
    "exportPopRecord": "",
    "getBrokerEpoch": "cluster list",
    "getColdDataFlowCtrInfo": "",
    "getConsumerConfig": "group show",
    "getConsumerStatus": "group lag",
    "getControllerConfig": "",
    "getControllerMetaData": "",
    "getSyncStateSet": "cluster list",
    "printMsgByQueue": "receive",
    "producer": "client list",
    "queryCq": "receive",
    "queryMsgTraceById": "message trace",
    "remappingStaticTopic": "",
    "removeBroker": "",
    "removeColdDataFlowCtrGroupConfig": "",
    "resetMasterFlushOffset": "",
    "resetOffsetByTimeOld": "group reset",
    "rocksDBConfigToJson": "",
    "sendMsgStatus": "bench",
    "setCommitLogReadAheadMode": "",
    "startMonitoring": "check",
    "updateColdDataFlowCtrGroupConfig": "",
    "updateControllerConfig": "",
    "updateOrderConf": "topic create",
    "updateStaticTopic": "",
    "updateSubGroupList": "import",
    "updateTopicList": "import",
}


def main(arguments: Sequence[str]) -> int:
    """Run the command line after ``orbitmq mqadmin``; returns the exit code."""
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "help") and len(arguments) <= 1:
        print(overview())
        return EXIT_OK
    if name == "help":
        name, arguments = arguments[1], [arguments[1], "--help"]
    try:
        offer = OFFERED.get(name)
        if offer is None:
            raise UsageError(_not_offered(name))
        options = _parser(name, offer).parse_args(arguments[1:])
        _check(offer, options)
        return run_async(_run(offer, options, servers_of(options.n, options.context)))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else EXIT_USAGE
    except (Exception, KeyboardInterrupt) as error:  # no other error escapes: the user sees one line
        if _streams.is_of_output(first_of(error)):
            raise first_of(error) from None  # the reader of a pipe is gone, or main() reports the error
        return report("mqadmin" if name not in OFFERED else f"mqadmin {name}", error)


async def _run(offer: Offer, options: Options, servers: Servers) -> int:
    from orbitmq.admin.client import Admin, cluster_of

    async with Admin(**servers.options) as admin:
        async for line in offer.work(Tool(admin, cluster_of(admin), servers), options):
            print(line, flush=True)
    return EXIT_OK


def overview() -> str:
    """The list of all available commands."""
    listed = {name: offer for name, offer in OFFERED.items() if not offer.is_alias}
    width = max(map(len, listed))
    return "\n".join(
        [
            "Commands of RocketMQ's mqadmin, with its flags and its output.",
            "",
            "Usage: orbitmq mqadmin NAME [FLAGS]; 'orbitmq mqadmin NAME --help' explains one",
            "",
            *(f"  {name:<{width}}  {offer.text}" for name, offer in listed.items()),
            "",
            "Examples:",
            "  orbitmq mqadmin clusterList -n 127.0.0.1:9876",
            "  orbitmq mqadmin updateTopic -c DefaultCluster -t orders -r 8 -w 8",
            "  orbitmq mqadmin consumerProgress -g billing",
        ]
    )


def _not_offered(name: str) -> str:
    if name in ELSEWHERE:
        instead = ELSEWHERE[name]
        return f"{name} is not offered" + (f": see 'orbitmq {instead} --help'" if instead else " by OrbitMQ")
    from difflib import get_close_matches

    near = get_close_matches(name, [*OFFERED, *ELSEWHERE], 1)
    hint = f"did you mean {near[0]}?" if near else "see 'orbitmq mqadmin --help'"
    return f"mqadmin has no command {name}: {hint}"


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, like all commands."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see '{self.prog} --help')")


PLACES = (
    Flag("b", "brokerAddr", "address of a broker, host:port"),
    Flag("c", "clusterName", "all masters of this cluster"),
)


def flags_of(offer: Offer) -> list[Flag]:
    """The flags of a command, without the common flags of all commands."""
    return [*(PLACES if offer.places else ()), *offer.flags]


def _parser(name: str, offer: Offer) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=f"orbitmq mqadmin {name}", description=f"{offer.text}.", add_help=False, allow_abbrev=False
    )
    parser.add_argument("-h", "--help", action="help", help="print this")
    parser.add_argument(
        "-n", "--namesrvAddr", dest="n", metavar="HOST:PORT;...", help="addresses of the name servers"
    )
    parser.add_argument("--context", help="the cluster of this context, see orbitmq context list")
    for flag in flags_of(offer):
        names = [f"-{flag.letter}"] * bool(flag.letter) + [f"--{flag.name}"]
        more: dict[str, Any] = {"metavar": "VALUE"} if flag.takes else {"action": "store_true"}
        dest = flag.letter or flag.name
        parser.add_argument(*names, dest=dest, required=flag.required, help=flag.help, **more)
    return parser


def _check(offer: Offer, options: Options) -> None:
    for name, value in vars(options).items():
        if isinstance(value, str):
            setattr(options, name, value.strip())
    if offer.places and (options.b is None) == (options.c is None):
        raise UsageError("give -b with the address of a broker, or -c with the name of a cluster")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
