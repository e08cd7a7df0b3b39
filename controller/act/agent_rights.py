"""Give ServiceAccounts the rights of agents, each once for a JobSet (docs/adr/0087)."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Final

from inplace.common.injection import rights
from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import AlreadyExists
from inplace.common.kube.resources import ROLE_BINDINGS, ROLES
from inplace.controller.api.access_review import may
from inplace.controller.plan.jobs import owner_reference

ANNOUNCE: Final = {"group": "inplace.dev", "resource": "epochs", "verb": "announce"}
PATCH_PODS: Final = {"resource": "pods", "verb": "patch"}
_KINDS: Final = {one.kind: one for one in (ROLES, ROLE_BINDINGS)}


@dataclass(slots=True)
class AgentRights:
    """The rights that this controller gave. Nothing watches them: they are asked for again with each new Job."""

    client: KubeClient
    _given: dict[str, set[str]] = field(default_factory=dict)  # accounts by JobSet UID

    async def give(self, jobset: JobSet, account: str) -> None:
        """Create what is missing of an account's rights; the JobSet owns it.

        Raises:
            ApiError, TransportError: something was not created; the next call begins anew.
        """
        announces = not await self._patches_by_itself(jobset.namespace, account)
        owner = owner_reference(jobset)
        objects = rights.permissions(jobset.namespace, account, jobset.name, owner=owner, announces=announces)
        for obj in objects:
            with contextlib.suppress(AlreadyExists):
                await self.client.create(_KINDS[obj["kind"]], jobset.namespace, obj)
        self._given.setdefault(jobset.uid, set()).add(account)

    def has(self, jobset: JobSet, account: str) -> bool:
        """Say whether they were given since the last new Job."""
        return account in self._given.get(jobset.uid, ())

    def forget(self, jobset_uid: str) -> None:
        """Ask again when an account is next named: the JobSet is gone, or it has new Jobs."""
        self._given.pop(jobset_uid, None)

    async def _patches_by_itself(self, namespace: str, account: str) -> bool:
        """Say whether an account may patch Pods by other rights than an agent's: admission would restrict it.

        Who may announce has our binding, of another JobSet, or every right there is, which admission leaves alone.
        """
        if await may(self.client, namespace, account, ANNOUNCE):
            return False
        return await may(self.client, namespace, account, PATCH_PODS)
