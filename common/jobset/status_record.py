"""Parts of the status that controllers write for themselves, for the next controller and for people."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import msgspec


class StatusRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of the status; every field has a default, and one that has its default is not written."""

    def fields(self) -> dict[str, Any]:
        """Return it as the status has it."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return fields

    @classmethod
    def read(cls, found: object) -> Self:
        """Read it; where another program wrote something else, that is passed over."""
        if not isinstance(found, Mapping):
            return cls()
        try:
            return msgspec.convert(found, cls)
        except msgspec.ValidationError:
            values: dict[str, Any] = {}
            for field in msgspec.structs.fields(cls):
                with suppress(KeyError, msgspec.ValidationError):
                    values[field.name] = msgspec.convert(found[field.encode_name], field.type)
            return cls(**values)
