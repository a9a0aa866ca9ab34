"""A URL leads nowhere but to the internet: not into this machine, its network or its cloud."""

from __future__ import annotations

import ipaddress
import socket

import pytest

from leasehold import WebhookChannel
from leasehold.adapters.channels.http_post import (
    AddressGuard,
    addresses_of,
    is_local,
    is_public,
)
from leasehold.errors import ChannelRefusedError, ChannelUnavailableError, LeaseholdError
from tests.api.channels.web_server import WebServer, answering, serving
from tests.worlds.deliveries import TIMEOUT_S, delivery, opener

TEAM = WebhookChannel(name="team", url_variable="TEAM_URL", secret_variable="TEAM_SECRET")  # noqa: S106 - a name
SECRET = "whsec_" + "QUFB" * 8

#: What leads to this machine, to its network, or to its cloud.
INSIDE = (
    "0.0.0.0",  # noqa: S104 - refused
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:c0a8:101::",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
)
OUTSIDE = (
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::",
    "2606:4700:4700::1111",
)
#: What may be allowed; the others of INSIDE may not.
LOCAL = (
    "10.1.2.3",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2002:c0a8:101::",
    "fc00::1",
)


@pytest.mark.parametrize("text", INSIDE)
def test_an_address_inside_is_not_public(text: str) -> None:
    address = ipaddress.ip_address(text)

    assert not is_public(address)
    assert is_local(address) == (text in LOCAL)


@pytest.mark.parametrize("text", OUTSIDE)
def test_one_outside_is(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))
    assert not is_local(ipaddress.ip_address(text))


def guard(*addresses: str, allow_local: bool = False) -> AddressGuard:
    return AddressGuard("team", lambda *_: addresses, allow_local=allow_local)


@pytest.mark.parametrize(
    ("url", "host", "port", "path"),
    [
        ("https://hooks.shop.example", "hooks.shop.example", 443, "/"),
        ("https://hooks.shop.example:8443/in?a=1#part", "hooks.shop.example", 8443, "/in?a=1"),
        ("HTTPS://Hooks.Shop.example/In", "hooks.shop.example", 443, "/In"),
        ("https://[2606:4700:4700:0::1111]/", "2606:4700:4700::1111", 443, "/"),
    ],
)
def test_where_a_url_leads(url: str, host: str, port: int, path: str) -> None:
    endpoint = guard().endpoint(url)

    assert (endpoint.host, endpoint.port, endpoint.path) == (host, port, path)
    assert endpoint.is_tls
    assert path == "/" or path not in repr(endpoint)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.shop.example/in",
        "//hooks.shop.example/in",
        "http://hooks.shop.example/in",
        "ftp://hooks.shop.example/in",
        "file:///etc/passwd",
        "https:///in",
        "https://",
        "https://user:w0rd@hooks.shop.example/",
        "https://hooks.shop.example@127.0.0.1/",
        "https://hooks.shop.example:22/",
        "https://hooks.shop.example:80/",
        "https://hooks.shop.example:0/",
        "https://hooks.shop.example:99999/",
        "https://hooks.shop.example:x/",
        "https://hooks.shop.example\\@127.0.0.1/",
        "https://hooks.shop.example /",
        "https://hooks.shop.example/a b",
        "https://hooks.shop.example/a\r\nX-Y: z",
        "https://hooks.shop.example\t/",
        "https://höoks.example/",
        "https://①②⑦.0.0.1/",
        "https://127。0。0。1/",
        "https://hooks%2eshop.example/",
        "https://hooks.shop.example%00/",
        "https://[::1",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1%eth0]/",
        "https://[v1.x]/",
        "https://[127.0.0.1]/",
        "https://metadata.google.internal/computeMetadata/v1/",
        "https://METADATA.google.internal./",
        "https://hooks.shop.example/" + "a" * 2048,
    ],
)
def test_a_url_that_no_channel_may_have_is_refused_unread(url: str) -> None:
    with pytest.raises(ChannelRefusedError) as refused:
        guard().endpoint(url)

    assert "passwd" not in refused.value.message
    assert "w0rd" not in refused.value.message


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0"])
def test_other_ways_to_write_an_address_are_resolved_as_the_system_does(host: str) -> None:
    """Their target is checked, so no list of them is needed."""
    guarded = AddressGuard("team", addresses_of)

    with pytest.raises((ChannelRefusedError, socket.gaierror)):
        guarded.addresses(guarded.endpoint(f"https://{host}/"))


@pytest.mark.parametrize("text", INSIDE)
def test_a_name_that_leads_inside_is_refused(text: str) -> None:
    """Also where another of its addresses is public."""
    for addresses in ((text,), ("1.1.1.1", text)):
        guarded = guard(*addresses)
        with pytest.raises(ChannelRefusedError, match=r"hooks\.shop\.example leads to"):
            guarded.addresses(guarded.endpoint("https://hooks.shop.example/in"))


@pytest.mark.parametrize("text", ["169.254.169.254", "fd00:ec2::254", "fe80::1", "224.0.0.1"])
def test_metadata_and_links_are_refused_where_local_addresses_are_allowed(text: str) -> None:
    guarded = guard(text, allow_local=True)

    with pytest.raises(ChannelRefusedError):
        guarded.addresses(guarded.endpoint("http://hooks.shop.example/"))


def test_a_name_without_an_address_may_have_one_later() -> None:
    environ = {"TEAM_URL": "https://nowhere.invalid/in", "TEAM_SECRET": SECRET}

    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(ChannelUnavailableError, match="Name or service not known"):
        opener(environ, resolve=resolve)(TEAM).send(delivery(), timeout=TIMEOUT_S)


# -- nothing is sent -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"])
def test_a_server_of_this_machine_sees_nothing(server: WebServer, host: str) -> None:
    environ = {"TEAM_URL": f"https://{host}:{server.port}/in", "TEAM_SECRET": SECRET}

    with pytest.raises(ChannelRefusedError, match="which is not a public address"):
        opener(environ, allow_local=False)(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert server.requests == []


def test_a_name_server_is_asked_once_and_its_answer_is_what_is_called(server: WebServer) -> None:
    """One that says something else the next time leads nowhere."""
    with serving() as other:
        answers = iter(["127.0.0.1"])
        environ = {"TEAM_URL": f"http://hooks.example:{server.port}/in", "TEAM_SECRET": SECRET}

        def resolve(host: str, port: int) -> list[str]:
            return [next(answers)]  # a second question is an error

        opener(environ, resolve=resolve)(TEAM).send(delivery(), timeout=TIMEOUT_S)

        assert [it.headers["Host"] for it in server.requests] == [f"hooks.example:{server.port}"]
        assert other.requests == []


def test_a_name_that_leads_elsewhere_at_the_next_try_is_checked_again(server: WebServer) -> None:
    answers = iter([["169.254.169.254"], ["127.0.0.1"]])
    environ = {"TEAM_URL": f"http://hooks.example:{server.port}/in", "TEAM_SECRET": SECRET}
    sender = opener(environ, resolve=lambda *_: next(answers))(TEAM)

    with pytest.raises(ChannelRefusedError):
        sender.send(delivery(), timeout=TIMEOUT_S)
    assert server.requests == []
    sender.send(delivery(), timeout=TIMEOUT_S)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "error"),
    [(301, ChannelRefusedError), (308, ChannelRefusedError)]
    + [(status, ChannelUnavailableError) for status in (302, 303, 307)],
)
def test_a_redirect_leads_nowhere(
    server: WebServer, status: int, error: type[LeaseholdError]
) -> None:
    with serving() as inside:
        server.answer = answering(status, Location=f"http://127.0.0.1:{inside.port}/admin")
        environ = {"TEAM_URL": f"http://127.0.0.1:{server.port}/in", "TEAM_SECRET": SECRET}

        with pytest.raises(error, match="no redirect is followed"):
            opener(environ)(TEAM).send(delivery(), timeout=TIMEOUT_S)

    assert (len(server.requests), inside.requests) == (1, [])


def test_a_proxy_of_the_environment_is_not_used(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv(name.upper(), f"http://127.0.0.1:{proxy.port}")
        environ = {"TEAM_URL": f"http://127.0.0.1:{server.port}/in", "TEAM_SECRET": SECRET}

        opener(environ)(TEAM).send(delivery(), timeout=TIMEOUT_S)

        assert (len(server.requests), proxy.requests) == (1, [])


def test_the_next_address_is_tried_where_one_cannot_be_reached(server: WebServer) -> None:
    environ = {"TEAM_URL": f"http://hooks.example:{server.port}/in", "TEAM_SECRET": SECRET}
    sender = opener(environ, resolve=lambda *_: ["127.0.0.2", "127.0.0.1"])(TEAM)

    sender.send(delivery(), timeout=TIMEOUT_S)

    assert len(server.requests) == 1
