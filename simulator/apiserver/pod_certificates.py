"""
The rules of certificates in a projected volume: bundles of trusted ones, and one of the Pod's own.

Source: k8s.io/kubernetes/pkg/apis/core/validation (1.37.2), validation.go, validateProjectionSources, and names.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required

Part = dict[str, Any]

KEYS: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")
LIFETIME_S: Final = 3600
LIFETIME_S_MAX: Final = 91 * 24 * 3600
LIFETIME_OF_KUBERNETES_S_MAX: Final = 24 * 3600


def paths(source: Part) -> list[str]:
    """Return where a projected source writes its certificates."""
    bundle, own = source.get("clusterTrustBundle"), source.get("podCertificate") or {}
    found = [bundle.get("path") or ""] if bundle is not None else []
    return found + [own[field] for field in PATHS if own.get(field)]


def trust_bundle(bundle: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateProjectionSources, ValidateClusterTrustBundleName."""
    name, signer = bundle.get("name"), bundle.get("signerName")
    if name is not None and signer is not None:
        yield bad_value(path, bundle, "only one of name and signerName may be used")
    elif name is not None:
        yield from _bundle_name(name, f"{path}.name")
        if bundle.get("labelSelector") is not None:
            why = "labelSelector must be unset if name is specified"
            yield bad_value(f"{path}.labelSelector", bundle["labelSelector"], why)
    elif signer is not None:
        yield from _signer(signer, f"{path}.signerName")
    else:
        yield required(path, "Required value: either name or signerName must be specified")
    if not bundle.get("path"):
        yield required(f"{path}.path")
    yield from (bad_value(f"{path}.path", bundle["path"], why) for why in formats.file_path(bundle.get("path") or ""))


def _bundle_name(name: str, path: str) -> Iterator[StatusCause]:
    if not name:
        yield required(path, "Required value: must be a valid object name")
    signer, colon, rest = name.rpartition(":")
    prefix = signer.replace(":", "/").replace("/", ":") + colon
    if not name.startswith(prefix):
        found = [f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"]
    else:
        found = formats.subdomain(rest)
    yield from (bad_value(path, name, f"not a valid clustertrustbundlename: {why}") for why in found)


def _signer(name: str, path: str) -> Iterator[StatusCause]:
    """Source: ValidateSignerName."""
    if not name:
        yield required(path)
        return
    domain, _, rest = name.partition("/")
    if name.count("/") != 1:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield bad_value(path, name, why)
        return
    if "." not in domain:
        yield bad_value(path, domain, "should be a domain with at least two segments separated by dots")
    for text, form in ((domain, formats.dns_label), (rest, formats.subdomain)):
        label, found = next(((one, found) for one in text.split(".") if (found := form(one))), ("", []))
        yield from (bad_value(path, text, f'validating label "{label}": {why}') for why in found)


def certificate(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateProjectionSources, ValidateUserAnnotations."""
    signer = source.get("signerName") or ""
    yield from _signer(signer, f"{path}.signerName")
    for key in map(str.lower, source.get("userAnnotations") or ()):
        alone = [] if "/" in key else ['must be a domain-prefixed key (such as "acme.io/foo")']
        yield from (bad_value(f"{path}.userAnnotations", key, why) for why in formats.label_key(key) or alone)
    if (kind := source.get("keyType") or "") not in KEYS:
        yield not_supported(f"{path}.keyType", kind, KEYS)
    lifetime = source.get("maxExpirationSeconds")
    host = signer.partition("/")[0]
    is_kubernetes = host == "kubernetes.io" or host.endswith(".kubernetes.io")
    most = LIFETIME_OF_KUBERNETES_S_MAX if is_kubernetes else LIFETIME_S_MAX
    if lifetime is not None and not LIFETIME_S <= lifetime <= most:
        bound = f">= {LIFETIME_S}" if lifetime < LIFETIME_S else f"<= {most}"
        why = f"if provided, maxExpirationSeconds must be {bound}"
        yield bad_value(f"{path}.maxExpirationSeconds", lifetime, why)
    given = [field for field in PATHS if source.get(field)]
    if not given:
        yield required(path, f"Required value: specify at least one of {PATHS[0]}, {PATHS[1]}, and {PATHS[2]}")
    for field in given:
        yield from (bad_value(f"{path}.{field}", source[field], why) for why in formats.file_path(source[field]))
