"""Commands of mqadmin that change name servers, the way in which groups get messages, and the files of
brokers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from orbitmq.cli.failures import UsageError
from orbitmq.cli.mqadmin.offers import Flag, Offers, Options, Tool, number
from orbitmq.settings import properties_text
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.pop import MessageRequestMode, SetMessageRequestModeRequestBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.base import RequestHeader

UPKEEP = Offers()
NAMESPACE = Flag("s", "namespace", "namespace of the key", required=True)
KEY = Flag("k", "key", "the key", required=True)
# The brokers to clean; without a flag, all brokers.
CLEANED = (
    Flag("b", "brokerAddr", "address of a broker, host:port"),
    Flag("c", "cluster", "all brokers of this cluster; without -b and -c all brokers"),
)


# -- name servers ----------------------------------------------------------------------------------------


@UPKEEP(
    "updateNamesrvConfig",
    "change a setting of the running name servers",
    Flag("k", "key", "the setting", required=True),
    Flag("v", "value", "its value", required=True),
)
async def update_namesrv_config(tool: Tool, options: Options) -> AsyncIterator[str]:
    body = properties_text.render({options.k: options.v}).encode()
    for address in await tool.name_servers():
        await tool.cluster.ask(address, Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=body))
    named = "" if options.n is None else f"[{', '.join(options.n.split(';'))}]"
    yield f"update name server config success!{named}"
    yield f"{options.k} : {options.v}"


@UPKEEP(
    "updateKvConfig",
    "set a value at the name servers",
    NAMESPACE,
    KEY,
    Flag("v", "value", "its value", required=True),
)
async def update_kv_config(tool: Tool, options: Options) -> AsyncIterator[str]:
    await _at_name_servers(
        tool, headers.PutKvConfigRequest(namespace=options.s, key=options.k, value=options.v)
    )
    yield "create or update kv config to namespace success."


@UPKEEP("deleteKvConfig", "delete a value from the name servers", NAMESPACE, KEY)
async def delete_kv_config(tool: Tool, options: Options) -> AsyncIterator[str]:
    await _at_name_servers(tool, headers.DeleteKvConfigRequest(namespace=options.s, key=options.k))
    yield "delete kv config from namespace success."


async def _at_name_servers(tool: Tool, request: RequestHeader) -> None:
    for address in await tool.name_servers():
        await tool.cluster.ask(address, request.command())


# -- groups ----------------------------------------------------------------------------------------------


@UPKEEP(
    "setConsumeMode",
    "let a group get a topic's messages by pull or by pop",
    Flag("t", "topicName", "name of the topic", required=True),
    Flag("g", "groupName", "name of the group", required=True),
    Flag("m", "mode", "PULL or POP", required=True),
    Flag("q", "popShareQueueNum", "with POP: members that share a queue (0: all)"),
    places=True,
)
async def set_consume_mode(tool: Tool, options: Options) -> AsyncIterator[str]:
    try:
        mode = MessageRequestMode(options.m)
    except ValueError:
        raise UsageError(f"-m {options.m}: expected PULL or POP") from None
    shared = number("q", options.q, 0)
    body = SetMessageRequestModeRequestBody(options.t, options.g, mode, shared).encode()
    for address in await tool.addresses(options):
        await tool.cluster.ask(address, Command(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body))
        yield f"set consume mode to {address} success."
    yield f"topic[{options.t}] group[{options.g}] consume mode[{mode}] popShareQueueNum[{shared}]"


# -- brokers ---------------------------------------------------------------------------------------------


@UPKEEP("cleanExpiredCQ", "delete consume queues that no message is in any more", *CLEANED)
async def clean_expired_cq(tool: Tool, options: Options) -> AsyncIterator[str]:
    yield await _cleaned(tool, options, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@UPKEEP("cleanUnusedTopic", "delete the queues of topics that are gone", *CLEANED)
async def clean_unused_topic(tool: Tool, options: Options) -> AsyncIterator[str]:
    yield await _cleaned(tool, options, RequestCode.CLEAN_UNUSED_TOPIC)


@UPKEEP("deleteExpiredCommitLog", "delete files of messages that are kept no longer", *CLEANED)
async def delete_expired_commit_log(tool: Tool, options: Options) -> AsyncIterator[str]:
    yield await _cleaned(tool, options, RequestCode.DELETE_EXPIRED_COMMITLOG)


async def _cleaned(tool: Tool, options: Options, code: RequestCode) -> str:
    if options.b is not None:
        addresses = [options.b]
    elif options.c is not None:
        addresses = [one.address for one in await tool.brokers(options.c)]
    else:
        addresses = [one.address for one in await tool.cluster.brokers()]
    for address in addresses:
        await tool.cluster.ask(address, Command(code))
    return "success"
