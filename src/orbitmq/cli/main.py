"""Entry point of the ``orbitmq`` command: it imports only the module of the named command.

The overview is plain text, so that ``orbitmq --help`` costs no import.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orbitmq import _streams

SERVERS = ("nameserver", "broker")
# Commands whose flags and output are RocketMQ's.
AS_ROCKETMQ = (*SERVERS, "mqadmin")
# The words after "broker" that stand for a command about running brokers; any other word starts a broker.
OF_BROKERS = ("list", "status", "config", "drain")
BROKERS = "orbitmq.cli.broker"

# For each command, its module and a description. The module of a family has its own App.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("orbitmq.cli.up", "Start a local cluster of a name server and some brokers."),
    "nameserver": ("orbitmq.cli.serve", "Run a name server (takes mqnamesrv's flags)."),
    "broker": (
        "orbitmq.cli.serve",
        "Run a broker (mqbroker's flags); look at running ones, drain one.",
    ),
    "send": ("orbitmq.cli.send", "Send messages to a topic."),
    "receive": ("orbitmq.cli.receive", "Print the messages of a topic, without or with a consumer group."),
    "topic": ("orbitmq.cli.topic", "List, create and delete topics; show their routes and offsets."),
    "group": ("orbitmq.cli.group_offsets", "List, create, delete and move groups; show members and lag."),
    "dlq": ("orbitmq.cli.dlq", "Dead letters: list, show and export them; send them again."),
    "message": ("orbitmq.cli.message", "Show a message by its id, find some by key, tag, time, trace one."),
    "timer": ("orbitmq.cli.timer", "Show messages that wait for their time, and recall them."),
    "tls": ("orbitmq.cli.tls", "Make an authority and certificates for TLS."),
    "cluster": ("orbitmq.cli.cluster", "Show the brokers of the clusters."),
    "user": ("orbitmq.cli.user", "Users of brokers that require keys: list, create, change, delete."),
    "quota": ("orbitmq.cli.quota", "What users, addresses and topics may use: set, list, delete."),
    "acl": ("orbitmq.cli.acl", "What users may do: allow, deny, list, delete, test, refusals."),
    "audit": ("orbitmq.cli.audit", "Show a server's audit log: who changed what, who was refused."),
    "check": ("orbitmq.cli.check", "Checks for monitoring: lag, brokers, dead letters, disks, TLS."),
    "top": ("orbitmq.cli.top", "A live table of rates and lags, by group and topic."),
    "mqadmin": ("orbitmq.cli.mqadmin.main", "RocketMQ's mqadmin: its commands, flags and output."),
    "client": ("orbitmq.cli.client", "Show connected clients, and what a consumer works on."),
    "console": ("orbitmq.cli.console", "Serve pages about a cluster to a browser on this machine."),
    "context": ("orbitmq.cli.context", "Name clusters, with the user that signs: the option --context."),
    "export": ("orbitmq.cli.exporting", "Write the topics and groups of a cluster as JSON."),
    "import": ("orbitmq.cli.importing", "Make the topics and groups of an export at another cluster."),
    "generate": ("orbitmq.cli.generating", "Print alerts, a board, units of systemd, files for containers."),
    "completion": ("orbitmq.cli.completion", "Complete commands and options in bash, zsh or fish."),
    "doctor": ("orbitmq.cli.doctor", "Look for what is wrong here or in the cluster, and say what to do."),
    "archive": ("orbitmq.cli.archive", "Check archives and merge their small files; needs no Spark."),
    "spark": ("orbitmq.cli.spark", "Jobs on Spark: archive, replay, audit; dead letters as tables."),
    "bench": ("orbitmq.cli.bench", "Measure sending and receiving against a running cluster."),
}

EXAMPLES = """\
Examples:
  orbitmq up                                   a cluster to play with
  orbitmq send greetings 'Hello' --tag A       one message
  seq 1000 | orbitmq send numbers -            one message for each line
  orbitmq receive greetings                    read without consuming
  orbitmq receive greetings --follow --format '%t[%p] %o %k %s\\n'
  orbitmq topic status greetings --json
  orbitmq group lag billing                    how far a group is behind
  orbitmq dlq list                             groups with dead letters
  orbitmq message find greetings --key 4711
  orbitmq timer list                           messages that wait for their time
  orbitmq spark archive orders /data/archive   topics as Parquet files
  orbitmq bench --fault-tolerance 4.x --watch  a live table of slow brokers

Name servers: -n 'host:port', --context, NAMESRV_ADDR, or 127.0.0.1:9876.
'orbitmq COMMAND --help' explains one command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` and return the exit code.

    Without ``arguments``, run the command line of the process and prepare its standard streams.
    """
    if arguments is not None:
        return _run(arguments)
    _streams.prepare()
    failure: OSError | None = None
    code = 0
    try:
        code = _run(sys.argv[1:])
    except OSError as error:
        failure = error
    failure = _streams.leave_unwritten() or failure
    if failure is None or isinstance(failure, BrokenPipeError):
        return code  # the reader of the pipe is gone (`| head`)
    print(f"orbitmq: the output cannot be written: {failure.strerror}", file=sys.stderr)
    return code or 1


def _run(arguments: Sequence[str]) -> int:
    words = list(arguments)
    name = words[0] if words else "--help"
    if name in ("--help", "-h", "help") and len(words) <= 1:
        print(overview())
        return 0
    if name == "help":
        name, words = words[1], [words[1], "--help"]
    if name in ("--version", "-V", "version"):
        from orbitmq import __version__, _speed

        print(f"orbitmq {__version__} ({_speed.of_package()})")
        return 0
    if name == "broker" and words[1:2] and words[1] in OF_BROKERS:
        from orbitmq.cli import app

        return app.run(name, BROKERS, words[1:])
    if name in SERVERS:
        from orbitmq.cli import serve

        return serve.main(name, words[1:])
    if name == "mqadmin":
        from orbitmq.cli.mqadmin.main import main as mqadmin

        return mqadmin(words[1:])
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return 2
    from orbitmq.cli import app

    return app.run(name, COMMANDS[name][0], words[1:])


def overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "OrbitMQ: Apache RocketMQ's messaging system in Python.",
            "",
            "Usage: orbitmq COMMAND [OPTIONS]",
            "",
            "Commands:",
            *lines,
            "",
            EXAMPLES,
        ]
    )


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, 1)
    hint = f"did you mean '{near[0]}'?" if near else "see 'orbitmq --help'"
    return f"orbitmq: there is no command '{name}': {hint}"


if __name__ == "__main__":
    sys.exit(main())
