"""
Show objects as a metav1.Table, the form in which kubectl prints and the agents watch.

Source: k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor for custom resources.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import jsonpath
from inplace.simulator.apiserver.kinds import Column, Kind

NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)


def table(
    kind: Kind,
    objects: list[KubeObject],
    meta: dict[str, Any],
    include_object: str,
    now_s: float,
    *,
    with_columns: bool = True,
) -> KubeObject:
    """Return a Table with one row per object.

    `include_object`: None drops the objects from the rows, Object keeps them whole, other values keep their metadata.
    """
    columns = kind.columns or DEFAULT_COLUMNS
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": [column.definition() for column in columns] if with_columns else None,
        "rows": [
            {"cells": [column.cell(obj, now_s) for column in columns], "object": _row_object(obj, include_object)}
            for obj in objects
        ],
    }


def _row_object(obj: KubeObject, include_object: str) -> KubeObject | None:
    if include_object == "Object":
        return obj
    meta = obj["metadata"]
    if include_object == "None" and "k8s.io/initial-events-end" not in (meta.get("annotations") or ()):
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}


def custom_columns(printer_columns: list[dict[str, Any]]) -> tuple[Column, ...]:
    """Return the columns of a CRD version's additionalPrinterColumns."""
    if not printer_columns:
        return DEFAULT_COLUMNS
    return (NAME, *(_custom_column(declared) for declared in printer_columns))


def _custom_column(declared: dict[str, Any]) -> Column:
    path = declared["jsonPath"]
    column_type = declared["type"]

    def cell(obj: KubeObject, now_s: float) -> Any:
        return _typed(jsonpath.first(obj, path), column_type, now_s)

    return Column(
        declared["name"],
        cell,
        column_type,
        declared.get("format", ""),
        declared.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        declared.get("priority", 0),
    )


def _typed(value: Any, column_type: str, now_s: float) -> Any:
    if value is None:
        return None
    if column_type == "string":
        return value if isinstance(value, str) else _as_text(value)
    if column_type == "date":
        return age(value, now_s) if isinstance(value, str) else None
    if column_type == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if column_type == "integer" else value
    return None


def _as_text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def parse_time_s(stamp: str) -> float:
    """Return seconds since the epoch of an RFC 3339 stamp."""
    return datetime.fromisoformat(stamp).timestamp()


def age(stamp: Any, now_s: float) -> str:
    """Return the time since a stamp in kubectl's words."""
    if not stamp:
        return "<unknown>"
    try:
        return human_duration(now_s - parse_time_s(stamp))
    except ValueError:
        return "<invalid>"


def human_duration(seconds_exact: float) -> str:
    """Return a duration in at most two units. Source: k8s.io/apimachinery/pkg/util/duration.HumanDuration."""
    seconds = int(seconds_exact)
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d") if days < 2920 else f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


NAME = Column("Name", lambda obj, _: obj["metadata"].get("name", ""), format="name", description=NAME_DESCRIPTION)
AGE = Column(
    "Age",
    lambda obj, now_s: age(obj["metadata"].get("creationTimestamp"), now_s),
    description="CreationTimestamp is the server time when this object was created.",
)
DEFAULT_COLUMNS = (NAME, Column("Age", AGE.cell, "date", description=AGE.description))
