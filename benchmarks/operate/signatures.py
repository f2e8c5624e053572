"""The CPU time of a send with each signature checked, beside Apache's broker with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import keys
from benchmarks.measure import Case, Generator
from benchmarks.operate.model import Found, Line, Place, Row
from benchmarks.operate.sides import Run, Side, compared, in_turn
from benchmarks.servers import Apache, Ours

from orbitmq.wire.frame import encode_frame
from orbitmq.wire.signing import Signer

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication.provider."
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization.provider."
SWITCHES: Final = {
    **keys.ON,
    "innerClientAuthenticationCredentials": '{"accessKey":"root","secretKey":"a long secret"}',
    "authenticationProvider": f"{_AUTHENTICATION}DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTHENTICATION}LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTHORIZATION}DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTHORIZATION}LocalAuthorizationMetadataProvider",
}
LINES = (Line("cpu", "CPU of a signed send, 16 x 16, ours / Apache's", most=0.25),)


def take(place: Place) -> Mapping[str, Found]:
    """Both brokers in turn; empty without Apache's."""
    if place.apache is None:
        return {}
    generator, frame = Generator(), _frame(place.folder)
    makers: dict[str, Ours | Apache] = {"ours": Ours(), "apache": Apache(place.apache)}
    with (
        Side(place.folder / "ours", generator, SWITCHES, maker=makers["ours"], signs=True) as ours,
        Side(place.folder / "apache", generator, SWITCHES, maker=makers["apache"], signs=True) as apache,
    ):
        sides = {"ours": ours, "apache": apache}

        def once(name: str, seconds: float) -> Run:
            with sides[name].working():
                return sides[name].load(Case(), seconds, frame=frame)

        for name, maker in makers.items():
            once(name, place.seconds(maker.warmup_s, 2.0))
        runs = in_turn(
            place.rounds(9), {name: partial(once, name, place.seconds(1.0, 0.4)) for name in sides}
        )
    return {"cpu": compared(runs, "server_cpu_us", "ours", "apache", "{:.2f} us")}


def _frame(folder: Path) -> Path:
    """The frame of a signed send. Only its opaque changes, which is not signed."""
    command = keys.frames()["send"]
    Signer(keys.ROOT).sign(command, keys.ROOT)
    path = folder / "send"
    path.write_bytes(encode_frame(command))
    return path


ROW = Row("signatures", "keys, each signature checked", LINES, take)
