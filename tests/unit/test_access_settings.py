"""Settings of authentication and authorization: those that a broker accepts, and those that keep it from
starting.
"""

from __future__ import annotations

import pytest

from orbitmq import Credentials
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.nameserver.config import NameServerConfig

ROOT = '{"username":"root","password":"pssst-1"}'
INNER = '{"accessKey":"inner","secretKey":"pssst-2"}'
ON = f"authenticationEnabled=true\nauthorizationEnabled=true\ninitAuthenticationUser={ROOT}\n"
AUTH = "org.apache.rocketmq.auth"


@pytest.mark.behaviour("AU-16")
def test_the_settings_of_rocketmq() -> None:
    config, said = BrokerConfig.load(
        f"{ON}innerClientAuthenticationCredentials={INNER}\n"
        f"authenticationProvider={AUTH}.authentication.provider.DefaultAuthenticationProvider\n"
        f"authorizationProvider={AUTH}.authorization.provider.DefaultAuthorizationProvider\n"
        f"authenticationMetadataProvider={AUTH}.authentication.provider.LocalAuthenticationMetadataProvider\n"
        f"authorizationMetadataProvider={AUTH}.authorization.provider.LocalAuthorizationMetadataProvider\n"
        f"authorizationStrategy={AUTH}.authorization.strategy.StatefulAuthorizationStrategy\n"
        "authenticationStrategy=\nauthenticationWhitelist=\nmigrateAuthFromV1Enabled=false\naclEnable=false\n"
    )
    assert (config.authentication_enabled, config.authorization_enabled) == (True, True)
    assert [(each.access_key, each.secret_key) for each in config.first_super_users()] == [
        (each.access_key, each.secret_key)
        for each in (Credentials("root", "pssst-1"), Credentials("inner", "pssst-2"))
    ]
    assert said[-1].startswith(
        "authenticationEnabled=true is about this broker: name servers have a setting of their own"
    )
    assert "pssst" not in "".join(said)


@pytest.mark.behaviour("AU-23")
def test_a_name_server_has_them_too() -> None:
    config, said = NameServerConfig.load(f"{ON}innerClientAuthenticationCredentials={INNER}\n")
    assert (config.authentication_enabled, config.authorization_enabled) == (True, True)
    assert [each.access_key for each in config.first_super_users()] == ["root", "inner"]
    assert config.auth_config_path.endswith("/namesrv/config")
    assert said == []
    shown = config.to_properties()
    assert shown["initAuthenticationUser"] == shown["innerClientAuthenticationCredentials"] == "***"
    assert "pssst" not in repr(config)


@pytest.mark.behaviour("AU-19")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{ON}authenticationWhitelist=105\n", "line 4: authenticationWhitelist=105: expected nothing"),
        (f"{ON}authenticationProvider=com.example.Mine\n", "other classes do not run here"),
        ("authorizationEnabled=true\n", "line 1: authorizationEnabled=true: expected authenticationEnabled"),
        ("authMode=observe\n", "line 1: authMode=observe: expected authenticationEnabled=true beside it"),
        ("aclEnable=true\n", "this server does not have it"),
        (f"{ON}migrateAuthFromV1Enabled=true\n", "only brokers read the accounts of ACL 1.0"),
    ],
)
def test_a_name_server_does_not_start_with_a_hole(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        NameServerConfig.load(text)


@pytest.mark.behaviour("AU-18")
def test_printed_settings_show_no_secret() -> None:
    config, _ = BrokerConfig.load(f"{ON}innerClientAuthenticationCredentials={INNER}\n")
    shown = config.to_properties()
    assert shown["initAuthenticationUser"] == shown["innerClientAuthenticationCredentials"] == "***"
    assert "pssst" not in repr(config)
    assert BrokerConfig().to_properties()["initAuthenticationUser"] == ""
    with pytest.raises(ConfigError) as caught:
        config.apply_live({"initAuthenticationUser": ROOT})
    assert str(caught.value).startswith("initAuthenticationUser=***: expected a setting that may change")


@pytest.mark.behaviour("AU-18")
@pytest.mark.parametrize("key", ["initAuthenticationUser", "innerClientAuthenticationCredentials"])
@pytest.mark.parametrize(
    "value",
    [
        "pssst",
        '"pssst"',
        "{pssst",
        '{"username":"root"}',
        '{"accessKey":"root","password":"pssst"}',
        '{"username":"","password":"pssst","accessKey":"","secretKey":"pssst"}',
        '{"username":"root","password":"pssst ","accessKey":"root","secretKey":"pssst "}',
        '{"username":["pssst"],"password":"x","accessKey":["pssst"],"secretKey":"x"}',
    ],
)
def test_keys_that_cannot_be_right_are_refused_and_not_shown(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(f"listenPort=1\n{key}={value}\n")
    assert str(caught.value).startswith(f"line 2: {key}=***: expected JSON as {{")
    assert "pssst" not in str(caught.value)


@pytest.mark.behaviour("AU-19")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("authenticationProvider=com.example.Mine", "other classes do not run here"),
        ("authorizationProvider=com.example.Mine", "other classes do not run here"),
        ("authenticationMetadataProvider=com.example.Mine", "other classes do not run here"),
        ("authorizationMetadataProvider=com.example.Mine", "other classes do not run here"),
        ("authenticationStrategy=com.example.Mine", "one of RocketMQ's two"),
        ("authorizationStrategy=com.example.Mine", "one of RocketMQ's two"),
        ("authenticationWhitelist=10,11", "no request is served here without an identity"),
        ("authorizationWhitelist=10", "no request is served here without an identity"),
        ("brokerRole=SYNC_MASTER", "with which the brokers of a name prove"),
        ("brokerRole=SLAVE", "with which the brokers of a name prove"),
        ("totalReplicas=2", "with which the brokers of a name prove"),
        (
            "enableSlaveActingMaster=true",
            "with which the brokers of a name prove",
        ),
        ("tls.protocols=TLSv1.3", "this server does not have it"),
    ],
)
def test_what_would_leave_a_hole_is_a_start_error(line: str, text: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(f"{ON}{line}\n")
    assert str(caught.value).startswith(f"line 4: {line}: expected ")
    assert text in str(caught.value)
    with pytest.raises(ConfigError, match=f"^{key}="):
        BrokerConfig.load(ON, {key: value})


@pytest.mark.behaviour("AU-35")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "aclEnable=true\nauthenticationEnabled=true",
            "line 2: authenticationEnabled=true: expected false be",
        ),
        (
            "authorizationEnabled=true\naclEnable=true",
            "line 1: authorizationEnabled=true: expected false besi",
        ),
        ("aclEnable=yes", "line 1: aclEnable=yes: expected true or false"),
        ("aclEnable=true\nbrokerRole=SLAVE\nbrokerId=1", "with which the brokers of a name prove"),
        ("aclEnable=true\nauthenticationWhitelist=10", "no request is served here without an identity"),
        ("aclEnable=true\nmigrateAuthFromV1Enabled=true", "line 2: migrateAuthFromV1Enabled=true"),
    ],
)
def test_accounts_of_acl_1_have_no_second_source_and_no_hole(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(text, path="/etc/mq/broker.conf")
    assert error in str(caught.value)


@pytest.mark.behaviour("AU-32")
def test_where_the_files_of_acl_1_are() -> None:
    config, said = BrokerConfig.load("aclEnable=true", path="/etc/mq/broker.conf")
    assert (config.acl_enable, config.requires_keys, config.acl_folder) == (True, True, "/etc/mq")
    assert said == ["aclEnable=true is about this broker: name servers know authenticationEnabled only"]
    config, _ = BrokerConfig.load("aclEnable=true\nrocketmqHome=/opt/mq", path="/etc/mq/broker.conf")
    assert config.acl_folder == "/opt/mq/conf"
    config, said = BrokerConfig.load(
        f"aclEnable=true\nauthMode=observe\ninnerClientAuthenticationCredentials={INNER}\n"
        "brokerRole=SLAVE\nbrokerId=1",
        path="/etc/mq/broker.conf",
    )
    assert config.auth_mode == "observe"
    with pytest.raises(ConfigError, match="line 1: aclEnable=true: expected rocketmqHome beside it"):
        BrokerConfig.load("aclEnable=true")
    assert not BrokerConfig.load("aclEnable=false")[0].requires_keys
    with pytest.raises(ConfigError, match="migrateAuthFromV1Enabled=true: expected rocketmqHome beside it"):
        BrokerConfig.load(f"{ON}migrateAuthFromV1Enabled=true")
    config, said = BrokerConfig.load(f"{ON}migrateAuthFromV1Enabled=true", path="/etc/mq/broker.conf")
    assert (config.reads_accounts, config.acl_enable) == (True, False)
    assert "deleted ones too" in said[-1]


@pytest.mark.behaviour("AU-19")
@pytest.mark.parametrize(
    "line", ["brokerRole=SYNC_MASTER", "totalReplicas=2", "enableSlaveActingMaster=true"]
)
def test_with_keys_of_its_own_a_broker_has_replicas(line: str) -> None:
    BrokerConfig.load(f"{ON}innerClientAuthenticationCredentials={INNER}\n{line}\n")


@pytest.mark.behaviour("AU-19")
def test_authorization_alone_is_a_start_error() -> None:
    with pytest.raises(
        ConfigError, match="line 1: authorizationEnabled=true: expected authenticationEnabled=true"
    ):
        BrokerConfig.load("authorizationEnabled=true\n")
    with pytest.raises(ConfigError, match="authorizationEnabled=true"):
        BrokerConfig.load(
            "authenticationEnabled=true\n", {"authenticationEnabled": "false", "authorizationEnabled": "true"}
        )


@pytest.mark.behaviour("AU-19")
def test_they_are_free_while_no_keys_are_asked_for() -> None:
    text = "authenticationWhitelist=10\nauthorizationEnabled=false\nbrokerRole=SYNC_MASTER\n"
    config, _ = BrokerConfig.load(f"{text}grpcServerPort=8081\n")
    assert not config.authentication_enabled


@pytest.mark.behaviour("AU-19")
def test_open_is_no_way_around_it() -> None:
    config, _ = BrokerConfig.load(f"{ON}allowOpen=true\n")
    assert config.authentication_enabled
    with pytest.raises(ConfigError, match="expected"):
        BrokerConfig.load(f"{ON}allowOpen=true\nauthenticationWhitelist=10\n")


@pytest.mark.behaviour("AZ-09")
def test_observing_is_said_at_the_start_and_needs_keys_to_ask_for() -> None:
    config, said = BrokerConfig.load(f"{ON}authMode=observe\n")
    assert (config.auth_mode, BrokerConfig.load(ON)[0].auth_mode) == ("observe", "enforce")
    assert "authMode=observe: everybody is served; what would be refused is counted" in said
    with pytest.raises(ConfigError, match="authMode=observe: expected authenticationEnabled=true beside it"):
        BrokerConfig.load("authMode=observe\n")
    with pytest.raises(ConfigError, match="authMode=off: expected one of enforce, observe"):
        BrokerConfig.load(f"{ON}authMode=off\n")
