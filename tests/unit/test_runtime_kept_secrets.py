"""The form of users' secrets in files."""

from __future__ import annotations

from base64 import b64encode

import pytest

from orbitmq.errors import StartError
from orbitmq.runtime.kept_secrets import KeptSecrets
from orbitmq.testing import SimulatedRuntime

PLAIN = {"password": "app-secret-1", "userType": "Normal", "userStatus": "enable"}
# A key with both characters in which the alphabets of base64 differ.
ONE = b64encode(b"\xfb\xff" * 16)
OTHER = b64encode(b"k" * 32)


def kept(runtime: SimulatedRuntime, *lines: bytes) -> KeptSecrets:
    runtime.files.make_dirs("/keys")
    runtime.files.write_atomic("/keys/auth.key", b"\n".join(lines) + b"\n")
    return KeptSecrets.of(runtime.files, "/keys/auth.key")


@pytest.mark.behaviour("AU-40")
def test_a_secret_comes_back_with_its_key_only(orbitmq_runtime: SimulatedRuntime) -> None:
    clear, one, other = KeptSecrets(), kept(orbitmq_runtime, ONE), kept(orbitmq_runtime, OTHER)
    assert (clear.encrypts, one.encrypts) == (False, True)
    assert clear.out(PLAIN) == PLAIN
    out = one.out(PLAIN)
    assert sorted(out) == ["encryptedPassword", "userStatus", "userType"]
    assert "app-secret-1" not in str(out)
    assert one.into(out) == PLAIN
    assert one.into(PLAIN) == PLAIN
    with pytest.raises(StartError, match="authKeyFile names no key"):
        clear.into(out)
    with pytest.raises(StartError, match="a key that the file of authKeyFile does not have"):
        other.into(out)
    with pytest.raises(StartError, match="a key that the file"):
        one.into({**out, "encryptedPassword": "x"})


@pytest.mark.behaviour("AU-40")
def test_the_first_key_encrypts_and_all_decrypt(orbitmq_runtime: SimulatedRuntime) -> None:
    old = kept(orbitmq_runtime, OTHER).out(PLAIN)
    both = kept(orbitmq_runtime, ONE, OTHER)
    assert both.into(old) == PLAIN
    assert kept(orbitmq_runtime, ONE).into(both.out(PLAIN)) == PLAIN


@pytest.mark.behaviour("AU-40")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((), "has 0 lines"),
        ((ONE,) * 11, "has 11 lines, 1 to 10 keys are possible"),
        ((b"short",), "has a line that is no key"),
        ((b64encode(b"k" * 31),), "has a line that is no key"),
        ((b"\xff" * 44,), "has a line that is no key"),
    ],
)
def test_a_file_without_keys_is_a_start_error(
    orbitmq_runtime: SimulatedRuntime, lines: tuple[bytes, ...], why: str
) -> None:
    with pytest.raises(StartError, match=why) as caught:
        kept(orbitmq_runtime, *lines)
    assert ONE.decode() not in str(caught.value)
    with pytest.raises(StartError, match="cannot read authKeyFile=/none"):
        KeptSecrets.of(orbitmq_runtime.files, "/none")
