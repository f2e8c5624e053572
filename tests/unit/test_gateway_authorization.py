"""The header authorization: the parts that are read, and refusals; and ids of transactions."""

from __future__ import annotations

import base64

import pytest

from orbitmq.gateway import transaction_id
from orbitmq.gateway.authorization import Authorization, authorization
from orbitmq.gateway.outbox import Room
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.transaction_id import TransactionId

NOW = "20261129T061500Z"
SIGNATURE = "B727846CAFB5B19E189D2C172CE2E1E7CDC0E7B7"
GOOD = f"MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, Signature={SIGNATURE}"


def read(text: str, **more: str) -> Authorization | None:
    return authorization({"authorization": text, "x-mq-date-time": NOW, **more})


@pytest.mark.behaviour("GW-34")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        (GOOD, "alice"),
        (GOOD.replace(SIGNATURE, SIGNATURE.lower()), "alice"),
        (GOOD.replace("alice", ""), ""),
        (GOOD.replace("alice", "alice//RocketMQ"), "alice"),
        (GOOD.replace(", ", ","), "alice"),
    ],
)
def test_the_header_of_every_client_is_read(text: str, key: str) -> None:
    found = read(text)
    assert found == Authorization(key, bytes.fromhex(SIGNATURE), NOW, "")


@pytest.mark.behaviour("GW-34")
def test_a_call_without_the_header_has_no_authorization() -> None:
    assert authorization({}) is None
    assert read("") is None
    found = authorization({"authorization": GOOD, "x-mq-date-time": NOW, "x-mq-session-token": "t"})
    assert found is not None
    assert found.session_token == "t"


@pytest.mark.behaviour("GW-34")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "begins with 'x'"),
        ("Basic YTpi", "begins with 'Basic'"),
        ("MQv2-HMAC-SHA1", "no name=value"),
        ("MQv2-HMAC-SHA1 Credential", "'Credential' is no name=value"),
        (GOOD.replace("Credential=alice, ", ""), "no Credential"),
        (GOOD.replace("SignedHeaders=x-mq-date-time, ", ""), "no SignedHeaders"),
        (GOOD.partition(", Signature")[0], "no Signature"),
        (GOOD.replace("x-mq-date-time", "host"), "SignedHeaders is 'host'"),
        (GOOD[:-2], "40 hexadecimal digits"),
        (GOOD + "00", "40 hexadecimal digits"),
        (GOOD[:-2] + "xy", "40 hexadecimal digits"),
        (GOOD[:-2] + " 0", "40 hexadecimal digits"),
        (f"{GOOD}, {GOOD.partition(' ')[2]}", "Credential is there twice"),
        (GOOD + " " * 10 + "x" * 2048, "characters, limit 2048"),
    ],
)
def test_a_broken_header_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(RefusalError) as caught:
        read(text)
    assert caught.value.code is Code.UNAUTHORIZED
    assert why in caught.value.message


@pytest.mark.behaviour("GW-34")
def test_a_signature_of_nothing_is_refused() -> None:
    with pytest.raises(RefusalError, match="x-mq-date-time, which it signs, is missing"):
        authorization({"authorization": GOOD})


# -- transaction ids -----------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-31")
def test_a_transaction_id_carries_all_that_ending_needs() -> None:
    known = TransactionId("broker-a", "orders", 7, 123_456_789_012)
    assert transaction_id.decode(known.encode(), "broker-a") == known


@pytest.mark.behaviour("GW-32")
@pytest.mark.parametrize(
    "text",
    [
        "v1 broker-a orders 7",
        "v1 broker-a orders 7 8 9",
        "v1 broker-a orders seven 8",
        "v1 broker-a orders 7 -8",
        "v1 broker-a orders 7 99999999999999999999",
        "v2 broker-a orders 7 8",
        "v1 broker-b orders 7 8",
        "",
    ],
)
def test_a_transaction_id_that_is_none_or_foreign_is_refused(text: str) -> None:
    encoded = base64.urlsafe_b64encode(text.encode()).decode()
    for each in (text, encoded):
        with pytest.raises(RefusalError, match="transaction_id") as caught:
            transaction_id.decode(each, "broker-a")
        assert caught.value.code is Code.INVALID_TRANSACTION_ID
    not_text = base64.urlsafe_b64encode(b"v1 \xff\xfe orders 7 8").decode()
    with pytest.raises(RefusalError):
        transaction_id.decode(not_text, "broker-a")


@pytest.mark.behaviour("GW-14")
def test_questions_that_wait_have_a_limit() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(41)
    assert room.take(40)
    room.give(60)
    assert room.take(60)
