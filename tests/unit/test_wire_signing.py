"""Signatures of requests, the secret that appears nowhere, and the errors made from refusals."""

from __future__ import annotations

import copy
import hmac
import json
import logging
import pickle
import traceback
from base64 import b64decode
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.signature_gate import signature

from orbitmq import BrokerError, Credentials, NotPermittedError, Secret, ValidationError
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import FrameError
from orbitmq.wire.frame import decode_frame, encode_frame
from orbitmq.wire.refusals import error_of, is_not_offered, refuses_user
from orbitmq.wire.signing import Signer, SigningKey, signed_content

KEYS = Credentials("app", "a very secret key")


def signed(command: Command, credentials: Credentials = KEYS, **more: Any) -> Command:
    Signer(credentials).sign(command, credentials, **more)
    return command


@pytest.mark.behaviour("AU-02")
def test_the_values_of_all_fields_are_signed_in_the_order_of_their_names_then_the_body() -> None:
    command = signed(Command(310, {"b": "orders", "a": "g", "Zone": "z", "i": ""}, b"\x00body"))
    assert signed_content(command.ext) == b"appzgorders"
    # The command is: printf 'appzgorders\0body' | openssl dgst -sha1 -hmac 'a very secret key' -binary |
    # base64
    assert command.ext["Signature"] == "X2M7twtezT3QOp5fuxlvHTjaeUw="
    assert list(command.ext)[-1] == "Signature"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(TEXTS, TEXTS, max_size=6), st.binary(max_size=40))
def test_any_request_is_signed_as_apache_checks_it(ext: dict[str, str], body: bytes) -> None:
    command = signed(Command(10, dict(ext), body))
    received = decode_frame(encode_frame(command))
    assert received.ext["Signature"] == signature("a very secret key", received.ext, received.body)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200, 4096])
def test_secrets_of_every_length_sign_as_the_standard_says(length: int) -> None:
    text = ("k\u00fc" * length)[:length]
    key = SigningKey(Secret(text))
    for _ in range(2):
        given = key.signature({"b": "orders"}, b"body")
        expected = hmac.new(text.encode(), b"ordersbody", "sha1").digest()
        assert b64decode(given) == expected, "a signature leaves the key as it was"


@pytest.mark.behaviour("AU-03")
def test_a_request_that_is_sent_again_is_signed_anew() -> None:
    ext = {"topic": "t"}
    lent = Credentials("app", "x", "lent")
    command = signed(Command(10, ext), lent)
    assert command.ext["SecurityToken"] == "lent"
    assert ext == {"topic": "t"}, "another client may share these fields"
    signed(command, KEYS)
    assert command.ext == signed(Command(10, {"topic": "t"})).ext


def test_a_body_beside_the_command_is_signed_in_its_place() -> None:
    one, other = Command(10, {"a": "1"}), Command(10, {"a": "1"}, b"body")
    assert signed(one, body=memoryview(b"body")).ext == signed(other).ext


def test_a_field_without_a_utf8_form_is_refused_as_without_a_signature() -> None:
    with pytest.raises(FrameError, match="UTF-8"):
        signed(Command(10, {"topic": "half \ud800"}))


@pytest.mark.behaviour("AU-08")
def test_a_secret_shows_itself_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    secret = Secret("pssst")
    credentials = Credentials("app", "pssst", "pssst-token")
    caplog.set_level(logging.DEBUG)
    logging.getLogger("any").info("%s %r %s", secret, credentials, Identity(credentials))
    shown = [
        str(secret),
        repr(secret),
        f"{secret:>10}",
        "{}".format(secret),  # noqa: UP032 - another way to format
        "%s" % secret,  # noqa: UP031 - another way to format
        repr(credentials),
        str(Identity(credentials)),
        repr(asdict(credentials)),
        json.dumps({"key": credentials}, default=str),
        repr(vars(Signer)),
        caplog.text,
    ]
    try:
        raise ValueError(credentials)
    except ValueError:
        shown.append(traceback.format_exc())
    assert not [text for text in shown if "pssst" in text]
    assert repr(credentials) == "Credentials(access_key='app', secret_key=***, security_token=***)"
    assert secret.reveal() == "pssst"


@pytest.mark.behaviour("AU-08")
def test_credentials_are_equal_by_their_keys_and_travel_to_other_processes() -> None:
    assert Credentials("app", Secret("a very secret key")) == KEYS
    assert Credentials("app", "another") != KEYS
    assert len({KEYS, copy.copy(KEYS), pickle.loads(pickle.dumps(KEYS))}) == 1
    assert Secret("a") != "a"


@pytest.mark.behaviour("AU-07")
@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((7, "s"), "access_key must be a string, got int"),
        (("", "s"), "access_key is empty"),
        (("a\n", "s"), "access_key has white space at its beginning or end"),
        (("a", b"pssst"), "secret_key must be a string, got bytes"),
        (("a", None), "secret_key must be a string, got NoneType"),
        (("a", ""), "secret_key is empty"),
        (("a", Secret("")), "secret_key is empty"),
        (("a", "pssst\n"), "secret_key has white space at its beginning or end: strip what a file gave"),
        (("a", "ps\x00sst"), "secret_key has characters that cannot be printed"),
        (("a", "p\ud800"), "secret_key has characters that cannot be printed"),
        (("a", "p" * 4097), "secret_key has 4097 characters, the limit is 4096"),
        (("a", "s", 5), "security_token must be a string, got int"),
        (("a", "s", ""), "security_token is empty"),
    ],
)
def test_keys_that_cannot_be_right_are_refused_and_not_shown(keys: Any, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Credentials(*keys)
    assert text in str(caught.value)
    assert "pssst" not in str(caught.value)


# -- refusals --------------------------------------------------------------------------------------------

USER_REMARKS = [
    "User:app is not found.",
    "User:app is disabled.",
    "check signature failed.",
    "username cannot be null.",
    "User:app has no permission to access Topic:t from 1.2.3.4, no matched policies.",
    "User:app has no permission to access Topic:t from 1.2.3.4, the decision is deny.",
]
OTHER_REMARKS = [
    "the broker[10.0.0.5] sending message is forbidden",
    "the topic[users] sending message is forbidden",
    "the broker[10.0.0.5] pulling message is forbidden",
    "subscription group no permission, username",
    None,
    "",
]


@pytest.mark.behaviour("AU-05")
@pytest.mark.parametrize("remark", USER_REMARKS)
def test_refusals_of_a_user_are_told_from_others(remark: str) -> None:
    assert refuses_user(ResponseCode.NO_PERMISSION, remark)
    assert not refuses_user(ResponseCode.SYSTEM_ERROR, remark)
    assert not refuses_user(ResponseCode.SUCCESS, remark)


@pytest.mark.behaviour("AU-05")
@pytest.mark.parametrize("remark", OTHER_REMARKS)
def test_a_topic_group_or_broker_that_is_closed_to_all_refuses_no_user(remark: str | None) -> None:
    assert not refuses_user(ResponseCode.NO_PERMISSION, remark)
    error = error_of(Command(310, {"b": "t"}), Command(16, remark=remark), "h:1")
    assert isinstance(error, NotPermittedError)
    assert str(error).startswith("h:1 does not permit SEND_MESSAGE_V2, topic t: ")


def test_other_codes_stay_errors_of_the_broker() -> None:
    error = error_of(Command(10), Command(2, remark="busy"), "h:1")
    assert type(error) is BrokerError
    assert str(error) == "h:1 answered code 2: busy"


def test_a_wrong_setting_does_not_read_as_a_missing_right() -> None:
    remark = "Can not update config: maxMessageSize=x: expected a whole number"
    error = error_of(Command(25), Command(16, remark=remark), "h:1")
    assert str(error) == f"h:1: {remark}"


def test_an_apache_broker_without_users_does_not_offer_them() -> None:
    """It answers requests about users and requests about rules with different remarks."""
    answer = Command(1, remark="An system error occurred, please try again later.")
    error = error_of(Command(RequestCode.AUTH_LIST_USER), answer, "h:1")
    assert str(error).startswith("h:1 answered code 1: not offered by this broker (code 3005)")
    assert "authenticationEnabled=true" in str(error)
    remark = "java.lang.IllegalStateException: The authorizationMetadataProvider is not configured., org"
    rules = error_of(Command(RequestCode.AUTH_LIST_ACL), Command(1, remark=remark), "h:1")
    assert str(rules).startswith("h:1 answered code 1: not offered by this broker (code 3010)")
    assert is_not_offered(error)
    assert is_not_offered(rules)
    other = error_of(Command(RequestCode.GET_BROKER_RUNTIME_INFO), answer, "h:1")
    assert str(other) == "h:1 answered code 1: An system error occurred, please try again later."
    assert not is_not_offered(other)


def test_a_topic_that_the_request_leaves_empty_is_not_named() -> None:
    request = Command(RequestCode.GET_CONSUME_STATS, {"topic": "", "consumerGroup": "g"})
    assert str(error_of(request, Command(16, remark="no"), "h:1")) == (
        "h:1 does not permit GET_CONSUME_STATS, group g: no"
    )


def test_an_unknown_request_is_named_by_its_number() -> None:
    error = error_of(Command(4711, {"group": "g"}), Command(16, remark="no"), "h:1")
    assert str(error) == "h:1 does not permit request 4711, group g: no"
    assert pickle.loads(pickle.dumps(error)).what == "request 4711, group g"


def test_a_refusal_can_be_copied_with_its_facts() -> None:
    request = Command(RequestCode.PULL_MESSAGE, {"topic": "t", "consumerGroup": "g", "AccessKey": "app"})
    error = error_of(request, Command(16, remark="User:app is disabled."), "h:1")
    other = copy.copy(error)
    assert isinstance(other, NotPermittedError)
    assert str(other) == "h:1 does not permit PULL_MESSAGE, topic t, group g to 'app': User:app is disabled."
    assert (other.code, other.user, other.what, other.address, other.remark) == (
        16,
        "app",
        "PULL_MESSAGE, topic t, group g",
        "h:1",
        "User:app is disabled.",
    )
