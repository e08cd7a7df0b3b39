"""What the controller keeps of a PersistentVolumeClaim."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from inplace.common.jobset.kinds import OwnedMeta, controller_uid
from inplace.common.kube.codec import slim
from inplace.common.wire import names as wire


class PersistentVolumeClaim(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim, slim: that it exists, whose it is, and its spec as it is stored, to compare."""

    metadata: OwnedMeta
    spec: dict[str, Any] = {}

    @property
    def owner_uid(self) -> str | None:
        """Return the UID of the JobSet that controls this claim."""
        return controller_uid(self.metadata.owner_references, wire.KIND)


CLAIM_CODEC: Final = slim(PersistentVolumeClaim)
