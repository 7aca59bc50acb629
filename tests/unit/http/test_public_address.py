"""Which addresses a request may go to that somebody else has thought out."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.http import NotPublic, is_public, public_addresses

pytestmark = pytest.mark.anyio

PRIVATE_4 = (
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.127.255.255", "192.0.0.170", "198.18.0.1", "198.19.255.255", "224.0.0.1"),
    *("239.255.255.250", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.51.100.7", "203.0.113.9", "168.63.129.16"),
)
PRIVATE_6 = (
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"),
    *("2002:7f00:1::", "2001:0:4136:e378::", "100::1", "3fff::1", "2001:10::1"),
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00:1450:4001::1", "2001:4860::1")


@pytest.mark.parametrize("address", [*PRIVATE_4, *PRIVATE_6, "", "localhost", "127.1", "0x7f000001", "8.8.8.8 "])
def test_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_what_is_public_is_so_for_python_too(address: IPv4Address) -> None:
    """Not the other way round: we refuse more, and its answers depend on its version."""
    if is_public(str(address)):
        assert address.is_global
        unusual = (address.is_multicast, address.is_private, address.is_loopback, address.is_link_local)
        assert not any(unusual)


@given(st.ip_addresses(v=6))
def test_an_ipv6_address_is_public_only_as_unicast(address: IPv6Address) -> None:
    if is_public(str(address)):
        assert address.packed[0] >> 5 == 1
        assert [address.is_private, address.ipv4_mapped, address.sixtofour, address.teredo] == [False, None, None, None]


@given(st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0", "::", "64:ff9b::", "64:ff9b:1::", "2002::"]))
def test_an_ipv4_address_is_not_public_in_any_wrapping(address: IPv4Address, wrapping: str) -> None:
    shift = 80 if wrapping == "2002::" else 0
    assert not is_public(str(IPv6Address(int(ip_address(wrapping)) + (int(address) << shift))))


async def test_one_address_that_is_not_public_is_enough() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["8.8.8.8", "10.0.0.7"]

    with pytest.raises(NotPublic) as caught:
        await public_addresses("example.com", 443, lookup=lookup)
    assert (caught.value.host, caught.value.address) == ("example.com", "10.0.0.7")
    named = await public_addresses("example.com", 443, private_hosts={"example.com"}, lookup=lookup)
    assert named == ["8.8.8.8", "10.0.0.7"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "::1", "0"])
async def test_every_way_to_write_this_machine_is_refused(host: str) -> None:
    with pytest.raises((NotPublic, OSError)):
        await public_addresses(host, 80)
