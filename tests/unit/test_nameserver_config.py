"""namesrv.conf: its settings, its warnings, its refusals."""

from __future__ import annotations

import pytest

from orbitmq.nameserver.config import ConfigError, NameServerConfig


def test_defaults_are_rocketmqs() -> None:
    config, warnings = NameServerConfig.load("")
    assert warnings == []
    assert (config.listen_port, config.bind_address, config.scan_interval_ms) == (9876, "0.0.0.0", 5000)
    assert config.kv_config_path.endswith("/namesrv/kvConfig.json")
    assert not config.support_acting_master
    assert NameServerConfig().kv_config_path == "", "an embedded one touches no file"


def test_a_file_sets_what_it_names() -> None:
    text = """# a comment
listenPort=9877
kvConfigPath = /data/kv.json
scanNotActiveBrokerInterval=1000
supportActingMaster=TRUE
"""
    config, warnings = NameServerConfig.load(text, path="/etc/namesrv.conf")
    assert warnings == []
    assert (config.listen_port, config.kv_config_path, config.scan_interval_ms) == (
        9877,
        "/data/kv.json",
        1000,
    )
    assert config.support_acting_master
    assert config.config_store_path == "/etc/namesrv.conf"


def test_overrides_win() -> None:
    config, _ = NameServerConfig.load("listenPort=1", {"listenPort": "2"})
    assert config.listen_port == 2


def test_keys_without_effect_are_named_one_by_one() -> None:
    _, warnings = NameServerConfig.load("serverWorkerThreads=8\nlistenPrt=9\nuseTLS=false")
    assert warnings == [
        "serverWorkerThreads=8 has no effect: one event loop serves all requests, "
        "there is no thread pool or queue to size",
        "listenPrt is not a setting of RocketMQ: ignored, did you mean listenPort?",
        "useTLS has no effect here",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("listenPort=x", "listenPort=x: expected a whole number from 0 to 65535"),
        ("listenPort=70000", "listenPort=70000: expected a whole number from 0 to 65535"),
        ("supportActingMaster=yes", "supportActingMaster=yes: expected true or false"),
        ("bindAddress=", "bindAddress=: expected a text that is not empty"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        NameServerConfig.load(f"# comment\n{line}")
    assert str(caught.value) == f"line 2: {message}"


def test_properties_and_back() -> None:
    config = NameServerConfig(listen_port=1234, support_acting_master=True)
    again, warnings = NameServerConfig().updated(
        {key: value for key, value in config.to_properties().items() if value}
    )
    assert again == config
    assert warnings == []


@pytest.mark.behaviour("ST-21")
@pytest.mark.parametrize("key", ["clientWorkerThreads", "controllerType", "enableElectUncleanMaster"])
def test_a_key_of_rocketmqs_is_one(key: str) -> None:
    assert NameServerConfig.load(f"{key}=1")[1] == [f"{key} is a setting of RocketMQ that has no effect here"]
