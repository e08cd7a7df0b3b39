"""Pod templates that the embedded API server takes and refuses, in the real server's words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBS, KubeObject
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.apiserver.decoding import TYPES
from inplace.simulator.apiserver.pod_fields import FIELDS
from inplace.simulator.apiserver.pod_rules import RULES
from inplace.simulator.apiserver.pods import PodStrategy
from tests.simulator.apiserver.template_rows import ANNOTATIONS, CONTAINER, JOB, POD, VOLUME

STRICT = {"dryRun": "All", "fieldValidation": "Strict"}


def with_value(kind: str, field: str, value: Any) -> KubeObject:
    """Return a Pod's spec with one field of the Pod, of its container or of its volume set."""
    container: dict[str, Any] = {"name": "t", "image": "t:1"}
    volume = {"name": "v"} | ({field: value} if kind == "volume" else {"emptyDir": {}})
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    if kind == "container":
        container[field] = value
    elif kind == "pod":
        spec[field] = value
    return spec


def job(kind: str, field: str, value: Any) -> KubeObject:
    """Return a Job with a field of its Pod, container or volume, an annotation, or several fields of its spec set."""
    metadata = {"annotations": {} if value is None else {field: value}} if kind == "annotation" else {}
    spec = {"template": {"metadata": metadata, "spec": with_value(kind, field, value)}} | (
        value if kind == "job" else {}
    )
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}


def refusal(body: KubeObject, query: dict[str, str] = STRICT) -> str:
    """Return why the embedded server refuses a Job; an empty text where it takes it."""

    async def ask() -> str:
        server = ApiServer(clock=LoopClock(), rng=Random(0))
        client = KubeClient(InMemoryTransport(server), user_agent="test", field_manager="test")
        try:
            await client.raw("POST", JOBS.path("default", query=query), body=body)
        except ApiError as error:
            return str(error)
        return ""

    return asyncio.run(ask())


TABLES = {"job": JOB, "annotation": ANNOTATIONS, "pod": POD, "container": CONTAINER, "volume": VOLUME}
ROWS = [(kind, *row) for kind, rows in TABLES.items() for row in rows]


@pytest.mark.parametrize(("kind", "field", "good", "bad", "words"), ROWS)
def test_a_value_is_taken_or_refused(kind: str, field: str, good: Any, bad: Any, words: str) -> None:
    """Of each row the server takes the one value, and refuses the other with the words of kube-apiserver."""
    assert refusal(job(kind, field, good)) == ""
    assert words in refusal(job(kind, field, bad))


def types_in(value: Any, type_name: str) -> Iterator[str]:
    """Yield the types in a value."""
    if type_name.startswith("[") and isinstance(value, list):
        for item in value:
            yield from types_in(item, type_name[1:-1])
    if type_name in TYPES and isinstance(value, dict):
        yield type_name
        for field in value.keys() & TYPES[type_name].keys():
            yield from types_in(value[field], TYPES[type_name][field])


def test_each_type_of_the_tables_has_a_row() -> None:
    """Every type that the tables judge stands in some row, and is a type of the API."""
    specs = [with_value(kind, field, value) for kind, field, *both, _ in ROWS for value in both]
    seen = {one for spec in specs for one in types_in(spec, "PodSpec")}
    rules = {"ContainerRestartRule", "ContainerRestartRuleOnExitCodes"}  # tests/conformance/test_workloads.py
    assert FIELDS.keys() | RULES.keys() <= seen | rules
    assert all(fields.keys() <= TYPES[name].keys() for name, fields in FIELDS.items())


def test_metadata_of_a_template_is_judged() -> None:
    """Labels obey the rules of labels, those that tie Pods to their Job are this Job's; annotations may be any text."""
    body = job("job", "", {})
    body["spec"]["template"]["metadata"] = {"labels": {"a": "<a>", "job-name": "other"}}
    said = refusal(body)
    assert 'spec.template.labels: Invalid value: "<a>"' in said
    assert "must be 'j'" in said
    assert refusal(job("annotation", "A.b/C", "<any>")) == ""


def test_an_unknown_field_is_dropped_unless_the_client_is_strict() -> None:
    """A client that does not ask for strict validation gets its Job without the field that the API does not know."""
    body = job("container", "imagePullPolicies", "Always")
    strict = 'strict decoding error: unknown field "spec.template.spec.containers[0].imagePullPolicies"'
    assert strict in refusal(body)
    assert refusal(body, {"dryRun": "All"}) == ""


def test_nulls_are_absent() -> None:
    """A field that stands empty in YAML counts as absent, and gets its default."""
    body = job("container", "ports", None)
    body["spec"]["template"]["spec"] |= {"dnsPolicy": None, "tolerations": None, "hostname": None}
    assert refusal(body) == ""


def test_pods_of_one_template_are_judged_once() -> None:
    """Pods that differ in their hostname alone share what their spec is made of."""
    strategy = PodStrategy()

    def created(hostname: str) -> KubeObject:
        body = {"metadata": {"name": hostname}, "spec": with_value("pod", "hostname", hostname)}
        context: Any = type("Context", (), {"strict": False})
        return strategy.prepare_create(body, context)

    first, second = created("a-0"), created("a-1")
    assert first["spec"]["containers"] is second["spec"]["containers"]
    assert (first["spec"]["hostname"], second["spec"]["hostname"]) == ("a-0", "a-1")
