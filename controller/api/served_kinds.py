"""
Watch kinds that most API servers do not serve, from the first JobSet on that needs them; until then nothing is asked.

While the server does not serve all of them, or does not let us read them, it is asked again now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anyio import create_task_group

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Forbidden, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import Resource

RETRY_S: Final = 2.0  # of a server that did not answer; JobSets wait


@dataclass(slots=True, eq=False)
class ServedKinds:
    """The informers of some kinds, as long as the server serves all of them.

    Args:
        made: makes an informer of a kind, with a listener for how its watches end.
        begins: called before they are watched, again after each time that the server denied one.
        is_served: called with "" when all caches are filled, or with why the server does not serve them.
        is_unknown: called with why nobody knows: the server did not answer.
        again_s: so often a server is asked that does not serve them.
        asked: somebody needs them.
        informers: those that run.
    """

    client: KubeClient
    kinds: Sequence[Resource]
    made: Callable[[Resource, Callable[[str], None]], Informer[Any]]
    begins: Callable[[], None]
    is_served: Callable[[str], None]
    is_unknown: Callable[[str], None]
    clock: Clock
    again_s: float
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    informers: dict[Resource, Informer[Any]] = field(default_factory=dict)
    _denied: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Watch while the server serves them all, and ask again while it does not."""
        await self.asked.wait()
        while True:
            try:
                for resource in self.kinds:
                    await self.client.list(resource, query={"limit": "1"})
            except (NotFound, Forbidden) as error:
                self.is_served(str(error))
                await self.clock.sleep(self.again_s)
            except (ApiError, TransportError) as error:
                self.is_unknown(str(error))
                await self.clock.sleep(RETRY_S)
            else:
                await self._watch()

    async def _watch(self) -> None:
        """Watch all kinds until the server denies one."""
        self.begins()
        self._denied.clear()
        self.informers = {resource: self.made(resource, self._ended) for resource in self.kinds}
        async with create_task_group() as group:
            for resource, informer in self.informers.items():
                group.start_soon(informer.run, name=resource.plural)
            group.start_soon(self._say_when_synced)
            await self._denied.wait()
            group.cancel_scope.cancel()
        self.informers = {}
        await self.clock.sleep(RETRY_S)

    def _ended(self, ending: str) -> None:
        if ending == "Denied":
            self._denied.set()

    async def _say_when_synced(self) -> None:
        for informer in self.informers.values():
            await informer.wait_synced()
        self.is_served("")
