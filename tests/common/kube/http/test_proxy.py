"""Which proxy stands before a server, as golang.org/x/net/http/httpproxy decides it."""

from __future__ import annotations

import pytest

from inplace.common.kube.http.proxy import proxy_of_environment, proxy_of_url
from inplace.common.kube.http.request import CredentialsError


@pytest.mark.parametrize(
    ("host", "no_proxy", "is_direct"),
    [
        ("api.example.com", "", False),
        ("localhost", "", True),
        ("127.0.0.9", "", True),
        ("::1", "", True),
        ("::ffff:127.0.0.1", "", True),
        ("api.example.com", "*", True),
        ("api.example.com", " , other , EXAMPLE.com ", True),
        ("example.com", "example.com", True),
        ("badexample.com", "example.com", False),
        ("example.com", ".example.com", False),
        ("api.example.com", ".example.com", True),
        ("api.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        ("api.example.com", "api.example.com:6443", True),
        ("api.example.com", "api.example.com:443", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3:6443", True),
        ("10.1.2.3", "10.1.2.3:443", False),
        ("10.1.2.3", "2.3", False),
        ("fd00::7", "fd00::/16", True),
        ("fd00::7", "[fd00::7]:6443", True),
        ("fd00::7", "[fd00::7]:443", False),
        ("fd00::7", "fd00:0::7", True),
        ("api.example.com", "10.0.0.0/8,:6443,/,[", False),
    ],
)
def test_no_proxy(host: str, no_proxy: str, is_direct: bool) -> None:
    """NO_PROXY has addresses, CIDR blocks, domains with and without a dot, and ports; this machine never needs one."""
    env = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy}
    assert (proxy_of_environment("https", host, 6443, env) is None) is is_direct


def test_the_server_s_scheme_and_the_lower_case_name_win() -> None:
    """HTTPS_PROXY is for https, HTTP_PROXY for http, ALL_PROXY for neither; lower case is asked first."""
    env = {"HTTPS_PROXY": "upper:1", "https_proxy": "lower:2", "ALL_PROXY": "http://all:3"}
    assert str(proxy_of_environment("https", "h", 443, env)) == "http://lower:2 (https_proxy)"
    assert proxy_of_environment("http", "h", 80, env) is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("proxy", ("http", "proxy", 80, "", "")),
        ("http://me:a%40b@[fd00::1]:3128/", ("http", "fd00::1", 3128, "me", "a@b")),
        ("socks5://proxy", ("socks5", "proxy", 1080, "", "")),
        ("socks5h://proxy:9", ("socks5", "proxy", 9, "", "")),
    ],
)
def test_a_proxy_s_url(url: str, expected: tuple[object, ...]) -> None:
    """A URL is taken apart; http is meant where it has no scheme."""
    proxy = proxy_of_url(url, "HTTPS_PROXY")
    assert (proxy.scheme, proxy.host, proxy.port, proxy.username, proxy.password) == expected


@pytest.mark.parametrize("url", ["https://me:hush@proxy", "ftp://proxy", "http://", "http://proxy:port", "http://[::1"])
def test_other_proxies_are_refused(url: str) -> None:
    """What we cannot speak to is refused with its source, and without its password."""
    with pytest.raises(CredentialsError, match="HTTPS_PROXY: expected") as refused:
        proxy_of_url(url, "HTTPS_PROXY")
    assert "hush" not in str(refused.value)
