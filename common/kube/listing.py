"""Read a whole collection as of one moment, page by page, in pages that fit into memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Final

import msgspec

from inplace.common.kube.answers import decoded
from inplace.common.kube.client import LIST_TIMEOUT_S, KubeClient
from inplace.common.kube.http.request import Request, TooLargeError

PAGE_SIZE: Final = 500  # client-go's; a page of Pods is some 5 MB
SMALLER: Final = 10  # times fewer objects, where a page has more bytes than the transport takes: 500, 50, 5, 1

Query = dict[str, str]


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "go_on": "continue"}):
    resource_version: str = ""
    go_on: str = ""


class Page(msgspec.Struct):
    """A part of a collection, its objects as they came; all pages have the resourceVersion of the one moment."""

    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_PAGE: Final = msgspec.json.Decoder(Page)


async def read_pages(
    client: KubeClient, path_of: Callable[[Query], str], query: Query, *, limit: int
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a collection.

    Args:
        client: sends the requests.
        path_of: makes a request's path of its query.
        query: selectors.
        limit: objects of a page; 0 asks for all in one.

    Raises:
        Expired: paging took longer than the server remembers.
        ApiError, TransportError: as the client does.
    """
    while True:
        request = Request("GET", path_of(query | ({"limit": str(limit)} if limit else {})), client.headers)
        try:
            response = await client.send(request, timeout_s=LIST_TIMEOUT_S)
        except TooLargeError:
            if limit == 1:
                raise
            limit = max(1, (limit or PAGE_SIZE) // SMALLER)
            continue
        page = decoded(_PAGE.decode, response.body, f"a list at {request.path}")
        yield page
        if not page.metadata.go_on:
            return
        query = query | {"continue": page.metadata.go_on}
