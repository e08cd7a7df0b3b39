"""
Read the JobSet list and the lines of the watch: Table rows, or whole objects.

Source: k8s.io/apimachinery meta/v1 WatchEvent, Table; apiextensions-apiserver tableconvertor (a missing value
is null, column definitions come at least with a stream's first event).

The events are records (`common.bare.record`): on the start path, making a frozen dataclass costs twenty times as much.
"""

from __future__ import annotations

import json

from inplace.common.bare.record import record
from inplace.common.bare.typed import TYPE_CHECKING, Any, Final
from inplace.common.kube.errors import error_from_status
from inplace.common.kube.http.request import GarbledError
from inplace.common.protocol.agent import View
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import restarts_in_place

if TYPE_CHECKING:
    from inplace.agent.settings.config import AgentConfig
    from inplace.common.protocol.members import Members

_NAME: Final = "Name"  # the first column of every custom resource's Table
COLUMNS: Final = (
    _NAME,
    wire.COLUMN_SYNCED,
    wire.COLUMN_DEPRECATED,
    wire.COLUMN_CURRENT,
    wire.COLUMN_PREVIOUS,
    wire.COLUMN_STRATEGY,
    wire.COLUMN_RESTART_IN_PLACE,
    wire.COLUMN_DISABLED,
    wire.COLUMN_UID,
)
_UNREADABLE: Final = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RecursionError,
)  # somebody else's JSON
_TEXT_CHARACTERS_MAX: Final = 40  # the longest number that makes sense has 15


@record
class Seen:
    """A JobSet as it is now.

    Args:
        status: the protocol's fields under their wire names.
        stall: what the annotation says of the watchdog's limits; None without it.
        stacks: the text of the last request for stacks; None is no annotation.
        notices: status.notices as it is; None where there are none.
        completed: the JobSet's work is done.
    """

    name: str
    uid: str
    resource_version: str
    status: dict[str, Any]
    in_place: bool
    stall: str | None = None
    stacks: str | None = None
    notices: Any = None
    completed: bool = False


@record
class Deleted:
    """A JobSet is gone."""

    name: str
    uid: str
    resource_version: str


@record
class Bookmark:
    """Nothing changed up to `resource_version`."""

    resource_version: str


class ColumnsMissingError(Exception):
    """The server's Table lacks our columns: its CRD is not ours."""


class OtherScopeError(RemoteProtocolError):
    """The JobSet is not divided into the scopes that this Pod's environment names; the message says what to do."""


JobSetEvent = Seen | Deleted | Bookmark


class JobSetEvents:
    """Decode the lines of one stream; remembers the Table's columns, which later lines may leave out."""

    def __init__(self) -> None:
        self._columns: dict[str, int] = {}

    def read_line(self, line: bytes) -> JobSetEvent:
        """Decode one watch event.

        Raises:
            ApiError: the line is an ERROR event.
            ColumnsMissingError: the answer is a Table without our columns.
            GarbledError: the line is no watch event.
        """
        try:
            event = json.loads(line)
            kind, obj = event["type"], event["object"]
            if kind == "ERROR":
                raise error_from_status(obj)
            if kind == "BOOKMARK":
                return _bookmark(obj)
            if kind not in ("ADDED", "MODIFIED", "DELETED"):
                raise GarbledError(f"expected a watch event, saw type {str(kind)[:40]!r}")
            (seen,) = self._objects(obj)
        except _UNREADABLE as error:
            raise GarbledError(f"expected a watch event of one JobSet, saw {line[:80]!r} ({error!r})") from error
        return Deleted(seen.name, seen.uid, seen.resource_version) if kind == "DELETED" else seen

    def read_list(self, body: bytes) -> tuple[list[Seen], str]:
        """Decode a collection; return its JobSets and its resourceVersion.

        Raises:
            ColumnsMissingError, GarbledError: as `read_line`.
        """
        try:
            obj = json.loads(body)
            return self._objects(obj), obj["metadata"]["resourceVersion"]
        except _UNREADABLE as error:
            raise GarbledError(f"expected a list of JobSets, saw {body[:80]!r} ({error!r})") from error

    def _objects(self, obj: dict[str, Any]) -> list[Seen]:
        if obj["kind"] == "Table":
            version = obj["metadata"].get("resourceVersion", "")
            self._learn(obj.get("columnDefinitions") or [])
            return [self._row(row["cells"], version) for row in obj.get("rows") or []]
        return [_plain(item) for item in obj.get("items", [obj])]

    def _learn(self, definitions: list[dict[str, Any]]) -> None:
        if definitions:
            self._columns = {column["name"]: index for index, column in enumerate(definitions)}
        if not all(name in self._columns for name in COLUMNS):
            raise ColumnsMissingError(f"the Table has the columns {', '.join(self._columns)}")

    def _row(self, cells: list[Any], version: str) -> Seen:
        def cell(column: str) -> Any:  # an older CRD of ours lacks some
            return cells[self._columns[column]] if column in self._columns else None

        return Seen(
            name=cell(_NAME),
            uid=cell(wire.COLUMN_UID) or "",
            resource_version=version,
            status={
                wire.SYNCED_EPOCH: cell(wire.COLUMN_SYNCED),
                wire.DEPRECATED_EPOCH: cell(wire.COLUMN_DEPRECATED),
                wire.CURRENT_ATTEMPT: cell(wire.COLUMN_CURRENT),
                wire.PREVIOUS_ATTEMPT: cell(wire.COLUMN_PREVIOUS),
                wire.MEMBERS_FIELD: cell(wire.COLUMN_MEMBERS),
                wire.SCOPED_EPOCHS: _list(cell(wire.COLUMN_SCOPED)),
            },
            in_place=_in_place(
                cell(wire.COLUMN_STRATEGY), cell(wire.COLUMN_RESTART_IN_PLACE), cell(wire.COLUMN_DISABLED)
            ),
            stall=_text(cell(wire.COLUMN_STALL)),
            stacks=_text(cell(wire.COLUMN_STACKS)),
            notices=_list(cell(wire.COLUMN_NOTICES)),
            completed=cell(wire.COLUMN_TERMINAL) == wire.TERMINAL_COMPLETED,
        )


def is_of(seen: Seen | Deleted, name: str, uid: str) -> bool:
    """Say whether `seen` is the JobSet of this name and uid ("" when not known yet); a recreated one is not."""
    return seen.name == name and uid in ("", seen.uid)


def view_of(seen: Seen, config: AgentConfig, *, consistent: bool) -> View:
    """Return what the protocol makes of a JobSet, as far as this Pod's scope is concerned.

    Raises:
        OtherScopeError: it is in place, and has no such scope, or one with spares that this Pod knows nothing of (the
            manifest is at fault).
        RemoteProtocolError: an epoch in its status is none (the controller is at fault).
    """
    status: dict[str, Any] | None = seen.status
    scope = config.restart_scope
    if scope or seen.status.get(wire.SCOPED_EPOCHS):
        status = wire.status_of_scope(seen.status, scope)
    if status is None:
        if seen.in_place:
            raise OtherScopeError(_how_to_name_the_scope(seen.status, scope))
        status = {}
    synced, deprecated = wire.epochs_of_status(status)
    members: Members | None = None
    if (text := status.get(wire.MEMBERS_FIELD)) is not None and seen.in_place:
        from inplace.common.wire.members import read_members

        members = read_members(text)
        is_for_all = not scope or (members is not None and members.everyone)
        if config.slot is None and not is_for_all:  # it would run in an epoch of which it is no member
            raise OtherScopeError(_how_to_name_the_members(scope))
    lists = (status.get(wire.SYNCED_EPOCH) or 0) >= synced
    return View(synced, deprecated, in_place=seen.in_place, consistent=consistent, members=members, lists=lists)


def saving_epoch_of(seen: Seen, scope: str) -> int | None:
    """Return the epoch of this Pod's scope whose workers are asked to save; None for none.

    Rows have no column for it, because all agents would pay for what one needs to see: only whole objects say it.
    """
    status = wire.status_of_scope(seen.status, scope) if scope else seen.status
    return wire.saving_epoch(status) if status else None


def _how_to_name_the_scope(status: dict[str, Any], scope: str) -> str:
    names = wire.scope_names(status)
    seen = f"the scopes {', '.join(names[:10])}" if names else "no scopes in its status"
    wanted = (
        f"expected scope {scope} (RESTART_SCOPE)"
        if scope
        else "expected a jobset that restarts as a whole (no RESTART_SCOPE)"
    )
    return (
        f"{wanted}, saw {seen}; give the agent's container env RESTART_SCOPE with "
        f"valueFrom.fieldRef.fieldPath metadata.annotations['{wire.RESTART_SCOPE}']"
    )


def _how_to_name_the_members(scope: str) -> str:
    return (
        f"expected MEMBERS, because scope {scope} has spares, but it is not set; give the agent's container env "
        f"MEMBERS with valueFrom.fieldRef.fieldPath metadata.annotations['{wire.MEMBERS}']"
    )


def _list(cell: str | None) -> Any:
    """Read the cell of a list, which a Table has as JSON."""
    return json.loads(cell) if cell else None


def _plain(obj: dict[str, Any]) -> Seen:
    metadata = obj["metadata"]
    policy = (obj.get("spec") or {}).get("failurePolicy") or {}
    annotations = metadata.get("annotations") or {}
    return Seen(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        status=obj.get("status") or {},
        in_place=_in_place(
            policy.get("restartStrategy"), annotations.get(wire.RESTART_IN_PLACE), annotations.get(wire.DISABLE)
        ),
        stall=_text(annotations.get(wire.STALL)),
        stacks=_text(annotations.get(wire.STACKS_REQUESTED)),
        notices=(obj.get("status") or {}).get(wire.NOTICES),
        completed=(obj.get("status") or {}).get(wire.TERMINAL_STATE) == wire.TERMINAL_COMPLETED,
    )


def _in_place(strategy: object, annotation: object, disabled: object) -> bool:
    """Say whether in-place restart is on; the disable annotation counts whatever its value."""
    return disabled is None and restarts_in_place(strategy, annotation)


def _text(value: object) -> str | None:
    """Return the text of an annotation, as far as anybody needs to read it."""
    return None if value is None else str(value)[:_TEXT_CHARACTERS_MAX]


def _bookmark(obj: dict[str, Any]) -> Bookmark:
    """Read a bookmark; a Table may carry the version in its row's object."""
    rows = [row.get("object") or {} for row in obj.get("rows") or []]
    metadatas = [carrier.get("metadata") or {} for carrier in (obj, *rows)]
    return Bookmark(next((version for metadata in metadatas if (version := metadata.get("resourceVersion"))), ""))
