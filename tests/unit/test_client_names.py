"""The user in a certificate: its only common name, or its only alternative name; otherwise none."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.runtime.client_names import NO_NAME, CertificateName, NamePart, name_in, name_of

CN = ((("organizationName", "shop"),), (("commonName", "app"),))


@pytest.mark.behaviour("AU-49")
@pytest.mark.parametrize(
    ("certificate", "part", "user", "problem"),
    [
        ({"subject": CN}, NamePart.CN, "app", ""),
        ({"subject": (*CN, (("commonName", "root"),))}, NamePart.CN, "", "more than one (2) common name"),
        ({"subject": ((("commonName", "a"), ("commonName", "a")),)}, NamePart.CN, "", "more than one (2)"),
        ({"subject": CN[:1]}, NamePart.CN, "", "no common name (CN)"),
        ({"subject": ((("commonName", ""),),)}, NamePart.CN, "", "an empty common name"),
        ({"subject": CN, "subjectAltName": (("DNS", "b"),)}, NamePart.CN, "app", ""),
        ({"subject": CN, "subjectAltName": (("DNS", "b"),)}, NamePart.SAN, "b", ""),
        ({"subjectAltName": (("URI", "spiffe://shop/app"),)}, NamePart.SAN, "spiffe://shop/app", ""),
        ({"subjectAltName": (("email", "app@shop"),)}, NamePart.SAN, "app@shop", ""),
        ({"subjectAltName": (("IP Address", "10.0.0.1"), ("DNS", "b"))}, NamePart.SAN, "b", ""),
        ({"subjectAltName": (("IP Address", "10.0.0.1"),)}, NamePart.SAN, "", "no alternative name (SAN)"),
        ({"subjectAltName": (("DNS", "a"), ("email", "b"))}, NamePart.SAN, "", "more than one (2)"),
        ({"subjectAltName": (("DNS", "a"), ("DNS", "a"))}, NamePart.SAN, "", "more than one (2)"),
        ({"subject": CN}, NamePart.SAN, "", "no alternative name"),
        ({}, NamePart.CN, "", "no common name"),
    ],
)
def test_one_name_counts(certificate: dict[str, Any], part: NamePart, user: str, problem: str) -> None:
    found = name_of(certificate, part)
    assert found.user == user
    assert found.problem.startswith(f"it has {problem}" if problem else "")
    assert bool(found.problem) == bool(problem)


def test_without_tls_or_switched_off_nobody_looks() -> None:
    for part in NamePart:
        assert name_in(None, part) == NO_NAME == CertificateName()
