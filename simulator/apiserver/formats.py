"""
The formats of texts and numbers in the API, each in the real server's words.

A format returns why a value breaks it; an empty list where it does not.
Source: k8s.io/apimachinery/pkg/util/validation/validation.go, /pkg/api/validate/content, /util/validation/ip.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Any, Final

from inplace.common.protocol.bounds import INT32_MAX

Format = Callable[[Any], list[str]]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_UNDERSCORED: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SYSCTL: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
SYSCTL: Final = re.compile(rf"({_SYSCTL}[\./])*{_SYSCTL}")
_ENDS: Final = "must start and end with an alphanumeric character"


def _matches(rule: str, form: str, *examples: str, most: int | None = None, unit: str = "characters") -> Format:
    """Return a format by a regular expression and a length."""
    pattern = re.compile(form, re.ASCII)
    shown = " or ".join(f"'{example}', " for example in examples)
    why = f"{rule} (e.g. {shown}regex used for validation is '{form}')"

    def check(value: str) -> list[str]:
        long = [f"must be no more than {most} {unit}"] if most and len(value.encode()) > most else []
        return long if pattern.fullmatch(value) else [*long, why]

    return check


subdomain: Final = _matches(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and {_ENDS}",
    _SUBDOMAIN,
    "example.com",
    most=253,
)
search_domain: Final = _matches(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and {_ENDS}",
    rf"{_UNDERSCORED}(\.{_UNDERSCORED})*",
    "example.com",
    most=253,
)
_dns_label: Final = _matches(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and {_ENDS}",
    _LABEL,
    "my-name",
    "123-abc",
    most=63,
)
label_value: Final = _matches(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}",
    f"({_KEY})?",
    "MyValue",
    "my_value",
    "12345",
    most=63,
    unit="bytes",
)
_key_name: Final = _matches(
    f"must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS}", _KEY, "MyName", "my.name", "123-abc"
)
header_name: Final = _matches(
    "a valid HTTP header must consist of alphanumeric characters or '-'", "[-A-Za-z0-9]+", "X-Header-Name"
)
_config_key: Final = _matches(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    "[-._a-zA-Z0-9]+",
    "key.name",
    "KEY_NAME",
    "key-name",
    most=253,
)


def dns_label(value: str) -> list[str]:
    """Return why a text is no DNS label."""
    found = _dns_label(value)
    return ["must not contain dots" if "(e.g." in why and not subdomain(value) else why for why in found]


def label_key(value: str) -> list[str]:
    """Return why a text is no label's key (a qualified name)."""
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_key_name('')[0]} {optional}"]
    found = [f"prefix part {why}" for why in (subdomain(prefix) if prefix else ["must be non-empty"] if slash else [])]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > 63:
        found.append("name part must be no more than 63 bytes")
    return found + [f"name part {why}" for why in _key_name(name)]


def annotation_key(value: str) -> list[str]:
    """Return why a text is no annotation's key: upper case is allowed everywhere."""
    return label_key(value.lower())


def config_key(value: str) -> list[str]:
    """Return why a text is no key of a ConfigMap or Secret."""
    return _config_key(value) + _not_a_parent(value)


def _not_a_parent(value: str) -> list[str]:
    if value in (".", ".."):
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def port_name(value: str) -> list[str]:
    """Return why a text is no name of a port."""
    rules = (
        (len(value) > 15, "must be no more than 15 characters"),
        (
            not re.fullmatch("[-a-z0-9]+", value),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (not re.search("[a-z]", value), "must contain at least one letter (a-z)"),
        ("--" in value, "must not contain consecutive hyphens"),
        (value != value.strip("-"), "must not begin or end with a hyphen"),
    )
    return [why for is_broken, why in rules if is_broken]


def variable_name(value: str) -> list[str]:
    """Return why a text is no name of an environment variable (relaxed, as of 1.34)."""
    if not value:
        return ["environment variable name must be non-empty"]
    if all(" " <= letter <= "~" and letter != "=" for letter in value):
        return []
    return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]


def _where(fits: Callable[[Any], bool], why: str) -> Format:
    """Return the format of the values that a predicate accepts."""
    return lambda value: [] if fits(value) else [why]


def between(least: int, most: int) -> Format:
    """Return the format of numbers in a range."""
    return _where(lambda value: least <= value <= most, f"must be between {least} and {most}, inclusive")


port_number: Final = between(1, 65535)
user_id: Final = between(0, INT32_MAX)
file_mode: Final = _where(
    lambda mode: 0 <= mode <= 0o777, "must be a number between 0 and 0777 (octal), both inclusive"
)
at_least_0: Final = _where(lambda number: number >= 0, "must be greater than or equal to 0")
above_0: Final = _where(lambda number: number > 0, "must be greater than zero")
weight: Final = _where(lambda share: 0 < share <= 100, "must be in the range 1-100")  # of a preference
no_backsteps: Final = _where(lambda path: ".." not in path.split("/"), "must not contain '..'")


def port(value: int | str) -> list[str]:
    """Return why a value is neither a port's number nor its name."""
    return port_name(value) if isinstance(value, str) else port_number(value)


def inner_path(value: str) -> list[str]:
    """Return why a path does not stay below its place."""
    return (["must be a relative path"] if value.startswith("/") else []) + no_backsteps(value)


def file_path(value: str) -> list[str]:
    """Return why a path is none of a file in a volume."""
    is_reserved = value.startswith("..") and not value.startswith("../")
    return inner_path(value) + (["must not start with '..'"] if is_reserved else [])


def ip_address(value: str) -> list[str]:
    """Return why a text is no IP address."""
    no_address = ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    if ":" in value:
        try:
            address = IPv6Address(value)
        except AddressValueError:
            return no_address
        if address.scope_id is not None:
            return no_address
        return ["must not be an IPv4-mapped IPv6 address"] if address.ipv4_mapped else []
    octets = value.split(".")
    try:
        IPv4Address(".".join(octet.lstrip("0") or octet[:1] for octet in octets))
    except AddressValueError:
        return no_address
    return ["must not have leading 0s"] if any(len(octet) > 1 and octet[0] == "0" for octet in octets) else []
