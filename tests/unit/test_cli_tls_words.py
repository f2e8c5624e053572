"""Advice about TLS names the options that a user of the command line has."""

from __future__ import annotations

import ssl

import pytest

from orbitmq import Tls, ValidationError
from orbitmq.cli.failures import EXIT_FAILED, explain
from orbitmq.cli.tls_words import as_options
from orbitmq.errors import TlsError
from orbitmq.runtime.client_tls import handshake_failure
from orbitmq.transport.identity import Identity

# OpenSSL's reasons for failed handshakes, and its codes for certificates that it rejects.
REASONS = (
    "WRONG_VERSION_NUMBER",
    "TLSV1_ALERT_UNKNOWN_CA",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "SSLV3_ALERT_BAD_CERTIFICATE",
)
VERIFY_CODES = (9, 10, 20, 62, 99)


def _failures() -> list[str]:
    errors: list[ssl.SSLError] = []
    for reason in REASONS:
        errors.append(ssl.SSLError(1, reason))
        errors[-1].reason = reason
    for code in VERIFY_CODES:
        unverified = ssl.SSLCertVerificationError(1, "x")
        unverified.verify_code, unverified.verify_message = code, "it is not right"
        errors.append(unverified)
    said = [handshake_failure(error, "h:1", shows_certificate=shows) for error in errors for shows in (0, 1)]
    shown = Tls()
    object.__setattr__(shown, "cert", "mine.pem")
    return [*said, *(Identity(tls=tls).hint for tls in (None, Tls(), shown))]


@pytest.mark.behaviour("CS-55")
@pytest.mark.parametrize("text", _failures())
def test_no_advice_is_python_for_who_types_a_command(text: str) -> None:
    said, code = explain(TlsError(f"no TLS with h:1: {text}"))
    assert code == EXIT_FAILED
    assert "Tls" not in said
    assert "leave out tls," not in said
    if "Tls" in text:
        assert "--" in said
        assert "ORBITMQ_TLS" in said
    else:
        assert as_options(text) == text or "does not speak TLS" in text


@pytest.mark.behaviour("CS-55")
def test_advice_names_the_option_and_the_variable() -> None:
    text = "the certificate of h:1 is unknown: give the authority's certificate as Tls(ca=...)"
    said, _ = explain(ValidationError(text))
    assert said.endswith("as --ca of 'orbitmq context create' or ORBITMQ_TLS_CA")
    # A message from explain() is not changed again, nor is a text with the option's name.
    assert as_options(said) == said
