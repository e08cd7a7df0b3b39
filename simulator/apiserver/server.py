"""
The embedded API server: one entry, `handle`, from a request to an answer.

Front ends (`http_front`, `memory`) adapt it to sockets or to in-process calls; the answers are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from copy import copy
from random import Random
from typing import Any

from inplace.common.kube.clock import Clock
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import negotiation, status, subresources
from inplace.simulator.apiserver.apf import PriorityAndFairness
from inplace.simulator.apiserver.builtin_kinds import builtin_kinds
from inplace.simulator.apiserver.crd import kinds_of
from inplace.simulator.apiserver.deletion import DeleteOptions, Deletions
from inplace.simulator.apiserver.discovery import AGGREGATED, Discovery, check_verb
from inplace.simulator.apiserver.garbage import GarbageCollector
from inplace.simulator.apiserver.kinds import Kind, Registry
from inplace.simulator.apiserver.metadata import check_types
from inplace.simulator.apiserver.negotiation import Format
from inplace.simulator.apiserver.options import ApiServerOptions
from inplace.simulator.apiserver.patches import Patches, decode_json, decode_yaml
from inplace.simulator.apiserver.pod_log import follow_log
from inplace.simulator.apiserver.reads import Reads, StreamingResponse
from inplace.simulator.apiserver.route import RequestCounter, Route, family_of, resource_route, split_path
from inplace.simulator.apiserver.status import StatusError
from inplace.simulator.apiserver.store import CollectionKey, Event, Store
from inplace.simulator.apiserver.subresources import REVIEWS, answer_review, is_local
from inplace.simulator.apiserver.watch_cache import WatchCache
from inplace.simulator.apiserver.writes import WriteOptions, Writes, check_identity, name_mismatch, namespace_mismatch

INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
MANAGER_CHARACTERS_MAX = 128
DEFAULT_OPTIONS = ApiServerOptions()

_CRDS: CollectionKey = ("apiextensions.k8s.io", "customresourcedefinitions")
_BODY_TYPES = ("application/json", "application/yaml")
_SUCCESS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_PROTOBUF = "application/vnd.kubernetes.protobuf"  # of typed clients

Answer = Response | StreamingResponse


class ApiServer:
    """A Kubernetes API server in one process.

    Args:
        clock: decides time; under a virtual-time loop nothing here reads another.
        rng: decides uids, generated names and watch lifetimes.
    """

    def __init__(self, *, clock: Clock, rng: Random, options: ApiServerOptions = DEFAULT_OPTIONS) -> None:
        self.options = options
        self.clock = clock
        self.store = Store()
        self.requests = RequestCounter()
        self._registry = Registry()
        self._writes = Writes(self.store, clock, rng)
        self._patches = Patches(self._writes)
        self._deletions = Deletions(self.store, clock)
        self._reads = Reads(self.store, clock, rng, options)
        self._fairness = PriorityAndFairness(options.priority_levels, clock, rng)
        self._discovery = Discovery(self._registry)
        self._garbage = GarbageCollector(
            self.store, self._registry, self._writes, self._deletions, clock, lambda: self.options.gc_delay_s
        )
        self._lagging: asyncio.Queue[WatchCache] = asyncio.Queue()
        self._reads.on_cache = self._lagging.put_nowait
        self.store.listen(self._follow_definitions)
        for kind in builtin_kinds(serves_gangs=options.serves_gangs):
            self._registry.add(kind)
            if kind.stored_as is None:
                self.store.collection(kind.storage_key)
        self._initial_namespaces_are_due = True

    def load(self, documents: Iterable[KubeObject]) -> None:
        """Install objects as an administrator would: CRDs first, then namespaces, then the rest."""
        self._create_initial_namespaces()
        order = {"CustomResourceDefinition": 0, "Namespace": 1}
        for document in sorted(documents, key=lambda found: order.get(found.get("kind", ""), 2)):
            kind = self._registry.by_object(document.get("apiVersion", ""), document.get("kind", ""))
            if kind is None:
                raise status.bad_request(
                    f"expected an object of a served kind, saw {document.get('apiVersion')} {document.get('kind')}"
                )
            namespace = ""
            if kind.resource.namespaced:
                namespace = document.get("metadata", {}).get("namespace") or "default"
            self._writes.create(kind, namespace, document, WriteOptions(manager="load"))

    async def run(self) -> None:
        """Collect garbage and move lagging caches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._garbage.run(), name="garbage-collector")
            await self.run_caches()

    def replica(self, options: ApiServerOptions, rng: Random) -> ApiServer:
        """Return another server of the same storage: it has watch caches (and their lag) and counters of its own.

        The replica runs `run_caches` instead of `run`: only the first server collects garbage.
        """
        other = copy(self)
        other._separate(options, rng)  # noqa: SLF001 - one of our own
        return other

    def _separate(self, options: ApiServerOptions, rng: Random) -> None:
        """Give this copy of a server its own caches and counters; it keeps sharing the storage and its rules."""
        self.options = options
        self.requests = RequestCounter()
        self._initial_namespaces_are_due = False  # the first server makes them
        self._reads = Reads(self.store, self.clock, rng, options)
        self._fairness = PriorityAndFairness(options.priority_levels, self.clock, rng)
        self._lagging = asyncio.Queue()
        self._reads.on_cache = self._lagging.put_nowait

    async def run_caches(self) -> None:
        """Move lagging caches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                cache = await self._lagging.get()
                if self.options.watch_cache_lag_s is not None:
                    tasks.create_task(cache.run(), name="watch-cache")

    async def handle(self, request: Request, *, user: str = "admin") -> Answer:
        """Answer one request of an authenticated user."""
        if self._initial_namespaces_are_due:
            self._create_initial_namespaces()
        if self.options.interceptor is not None:
            answer = await self.options.interceptor(request, user)
            if answer is not None:
                return answer
        try:
            return await self._dispatch(request, user)
        except StatusError as error:
            if error.code == 429:
                self.requests.rejected += 1
            return error.response()

    def watchers(self, group: str, plural: str) -> int:
        """Return the number of open watches of a resource."""
        return self._reads.cache((group, plural)).watcher_count()

    def drop_watches(self, group: str, plural: str) -> None:
        """End every watch of a resource, as a restarting server does."""
        self._reads.cache((group, plural)).close_all()

    def compact(self) -> None:
        """Forget all history: older resourceVersions answer 410 from now on."""
        for collection in self.store.collections():
            collection.forget_before(self.store.revision)

    def _create_initial_namespaces(self) -> None:
        # Not in the constructor: under a virtual-time loop the clock can only be read while the loop runs.
        if not self._initial_namespaces_are_due:
            return
        self._initial_namespaces_are_due = False
        kind = self._registry.by_object("v1", "Namespace")
        assert kind is not None
        for name in INITIAL_NAMESPACES:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self._writes.create(kind, "", body, WriteOptions(manager="kube-apiserver"))

    def _follow_definitions(self, key: CollectionKey, event: Event) -> None:
        """Serve the kinds that CustomResourceDefinitions define."""
        if key != _CRDS:
            return
        old = kinds_of(event.old) if event.old is not None else []
        if event.old is not None and event.type == "MODIFIED" and event.old["spec"] is event.obj["spec"]:
            return
        for kind in old:
            self._registry.remove(kind)
        if event.type != "DELETED":
            for kind in kinds_of(event.obj):
                self._registry.add(kind)
                if kind.stored_as is None:
                    self._read_anew(kind)
            return
        stored = old[0].storage
        for obj in list(self.store.collection(stored.storage_key).objects.values()):
            self.store.remove(stored.storage_key, obj)
        self._reads.forget(stored.storage_key)
        self.store.drop(stored.storage_key)

    def _read_anew(self, kind: Kind) -> None:
        """Hold stored objects to a new schema, as the server does whenever it reads one; the kind's watches end."""
        collection = self.store.collection(kind.storage_key)
        assert kind.strategy is not None
        for key, obj in collection.objects.items():
            collection.objects[key] = kind.strategy.decode(obj, strict=False)
        collection.forget_before(self.store.revision)
        self._reads.forget(kind.storage_key)

    async def _dispatch(self, request: Request, user: str) -> Answer:
        parts, query = split_path(request)
        route = resource_route(request.method, parts, query)
        if route is None:
            return self._answer_static(request, parts)
        family = family_of(request.headers.get("user-agent", ""))
        self.requests[route.verb, route.resource, family] += 1
        if not self._fairness:
            return await self._answer(request, route, user)
        async with self._fairness.seat(user, route):
            return await self._answer(request, route, user)

    def _answer_static(self, request: Request, parts: list[str]) -> Response:
        if parts[0] in ("healthz", "readyz", "livez"):
            return Response(200, {"content-type": "text/plain; charset=utf-8"}, b"ok")
        accept = request.headers.get("accept", "")
        document = self._discovery.answer(parts, accept)
        if document is None:
            raise status.page_not_found()
        if request.method != "GET":
            raise status.method_not_allowed()
        content_type = "application/json"
        if document.get("kind") == "APIGroupDiscoveryList":
            content_type = AGGREGATED
        return Response(200, {"content-type": content_type}, negotiation.encode(document, Format()))

    async def _answer(self, request: Request, route: Route, user: str) -> Answer:
        if route.plural in REVIEWS.get((route.group, route.version), ()):
            if bool(route.namespace) is not is_local(route.plural):
                raise status.page_not_found()
            question = {} if _is_protobuf(request) else self._body(request)
            return _json(201, answer_review(route, question, user))
        kind = self._registry.by_url(route.group, route.version, route.plural)
        if kind is None:
            built_in = any(not known.custom and known.group == route.group for known in self._registry.all())
            raise status.unknown_resource() if built_in else status.page_not_found()
        if not kind.resource.namespaced and route.namespace:
            raise status.page_not_found()
        check_verb(kind, route)
        answer = negotiation.choose(request.headers.get("accept", ""), route.query.get("includeObject", ""))
        if route.subresource not in ("", "status"):
            return await self._answer_subresource(request, route, kind, user)
        match route.verb:
            case "get":
                return self._shown(kind, await self._reads.get(kind, route), answer)
            case "list":
                items, meta = await self._reads.list(kind, route)
                shown = negotiation.render_list(kind, items, meta, answer, self.clock.wall_s())
                return Response(200, _content(answer), negotiation.encode(shown, answer))
            case "watch":
                return await self._reads.watch(kind, route, answer)
            case "create":
                created = self._writes.create(
                    kind, route.namespace, self._body(request), _options(request, route, user)
                )
                return self._shown(kind, created, answer, 201)
            case "update":
                return self._update(request, route, kind, answer, _options(request, route, user))
            case "patch":
                return self._patch(request, route, kind, answer, _options(request, route, user))
            case "delete":
                return self._delete(request, route, kind, answer)
            case "deletecollection":
                return await self._delete_collection(request, route, kind)
        raise status.method_not_allowed()

    def _shown(self, kind: Kind, obj: KubeObject, answer: Format, code: int = 200) -> Response:
        shown = negotiation.render(kind, obj, answer, self.clock.wall_s())
        return Response(code, _content(answer), negotiation.encode(shown, answer))

    def _found(self, kind: Kind, route: Route) -> KubeObject:
        found = self.store.get(kind.storage_key, route.namespace, route.name)
        if found is None:
            raise status.not_found(kind.plural, kind.group, route.name)
        return found

    def _update(self, request: Request, route: Route, kind: Kind, answer: Format, options: WriteOptions) -> Response:
        body = self._body(request)
        checked = self._checked_replacement(kind, route, body)
        old = self.store.get(kind.storage_key, route.namespace, route.name)
        if old is None:
            if kind.create_on_update and not route.subresource:
                return self._shown(kind, self._writes.create(kind, route.namespace, body, options), answer, 201)
            raise status.not_found(kind.plural, kind.group, route.name)
        if not kind.unconditional_update and not checked["metadata"].get("resourceVersion"):
            cause = status.bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise status.invalid(kind.resource.kind, kind.group, route.name, [cause])
        return self._shown(kind, self._writes.replace(kind, old, checked, options), answer)

    def _checked_replacement(self, kind: Kind, route: Route, body: KubeObject) -> KubeObject:
        """Return a PUT's object in its stored form; raise 400 when its name is not the URL's."""
        check_identity(kind, body)
        meta = body.get("metadata") or {}
        check_types(meta)
        if (meta.get("name") or "") != route.name:
            raise name_mismatch(meta.get("name") or "", route.name)
        if meta.get("namespace") and meta["namespace"] != route.namespace:
            raise namespace_mismatch()
        meta = meta | ({"namespace": route.namespace} if route.namespace else {})
        full = {**body, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind, "metadata": meta}
        return kind.to_stored(full) if kind.to_stored is not None else full

    def _patch(self, request: Request, route: Route, kind: Kind, answer: Format, options: WriteOptions) -> Response:
        object_key = (route.namespace, route.name)
        old = self.store.get(kind.storage_key, *object_key)
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        patched, created = self._patches.patch(kind, object_key, old, media_type, request.body, options)
        return self._shown(kind, patched, answer, 201 if created else 200)

    def _delete(self, request: Request, route: Route, kind: Kind, answer: Format) -> Response:
        options = DeleteOptions.parse(self._body(request) if request.body else None, route.query)
        obj = self._found(kind, route)
        last, gone = self._deletions.delete(kind, obj, options)
        if not gone or kind.returns_deleted:
            return self._shown(kind, last, answer)
        meta = last["metadata"]
        details = {"name": meta["name"], "group": kind.group, "kind": kind.plural, "uid": meta["uid"]}
        return _json(200, _SUCCESS | {"details": {key: value for key, value in details.items() if value}})

    async def _delete_collection(self, request: Request, route: Route, kind: Kind) -> Response:
        options = DeleteOptions.parse(self._body(request) if request.body else None, route.query)
        items, meta = await self._reads.list(kind, route)
        deleted = []
        for item in items:
            key = (item["metadata"].get("namespace") or "", item["metadata"]["name"])
            current = self.store.get(kind.storage_key, *key)
            if current is not None:
                deleted.append(self._deletions.delete(kind, current, options)[0])
        shown = negotiation.render_list(kind, deleted, meta, Format(), self.clock.wall_s())
        return _json(200, shown)

    async def _answer_subresource(self, request: Request, route: Route, kind: Kind, user: str) -> Answer:
        obj = self._found(kind, route)
        if route.subresource == "log":
            return follow_log(obj, route, self.options.log_source)
        body = self._body(request)
        match route.subresource:
            case "binding":
                subresources.bind(self._writes, kind, obj, body, _options(request, route, user))
                return _json(201, _SUCCESS | {"code": 201})
            case "eviction":
                subresources.evict(self._deletions, kind, obj, body, writes=self._writes)
                return _json(201, _SUCCESS | {"code": 201})
            case "token":
                return _json(201, subresources.mint_token(obj, body, self.clock))
        return _json(200, subresources.finalize(self.store, obj, body))

    def _body(self, request: Request) -> KubeObject:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if media_type not in ("", *_BODY_TYPES):
            raise status.unsupported_media_type(_BODY_TYPES, is_protobuf=media_type == _PROTOBUF)
        body = decode_yaml(request.body) if media_type == "application/yaml" else decode_json(request.body)
        if not isinstance(body, dict):
            raise status.bad_request(f"expected an object, saw {type(body).__name__}")
        return body


def _options(request: Request, route: Route, user: str) -> WriteOptions:
    query: Mapping[str, str] = route.query
    dry_run = query.get("dryRun")
    if dry_run not in (None, "", "All"):
        cause = status.not_supported("dryRun", [dry_run], ("All",))
        raise status.invalid(f"{route.verb.capitalize()}Options", "meta.k8s.io", "", [cause])
    manager = query.get("fieldManager", "")
    applying = request.headers.get("content-type", "").startswith("application/apply-patch")
    if not manager and not applying:
        manager = family_of(request.headers.get("user-agent", ""))[:MANAGER_CHARACTERS_MAX]
    return WriteOptions(
        user,
        manager,
        dry_run=dry_run == "All",
        strict=query.get("fieldValidation") == "Strict",
        force=query.get("force") == "true",
        subresource=route.subresource,
        replacing=route.verb == "update",
    )


def _is_protobuf(request: Request) -> bool:
    """Return whether a body is protobuf, which this server cannot read; a review is answered without reading it."""
    return request.headers.get("content-type", "").startswith("application/vnd.kubernetes.protobuf")


def _content(answer: Format) -> dict[str, str]:
    return {"content-type": answer.content_type}


def _json(code: int, document: Any) -> Response:
    return Response(code, {"content-type": "application/json"}, negotiation.encode(document, Format()))
