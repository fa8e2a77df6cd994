"""All objects of one resource, then every change, for ever: what a watcher must get right about lists and watches.

1. List in pages, at one version of the collection (`Listed`). A continue token that expired starts the list again.
2. Watch from that version with bookmarks, each watch bounded in time; a watch that ends goes on where it stopped. Once it is open the server is asked
   whether it has that version at all: one whose data was restored from a backup keeps a watch from the future open, and silent.
3. A version that is too old (410), or a call of `relist()`: from 1.
4. Anything else that goes wrong: `Down`, a pause that grows, then go on. A kind that the server does not know is `Down` with
   `not_served` and asked for again at longer pauses.

An object that does not decode is handed to `on_malformed` and left out; the rest goes on (R9). What objects mean, and which of two states
is newer, is the reader's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from shared.kube.client import KubeClient
from shared.kube.errors import ApiError, Gone, NotFound, error_of
from shared.kube.resources import Resource
from shared.kube.transport import NO_QUERY

T = TypeVar("T")

_TOO_NEW = "Too large resource version"
"""What the API server says of a list at a version that it has not reached: its data was restored from a backup."""


class ObjectReference(msgspec.Struct, frozen=True, gc=False):
    """Which object, and which state of it: all that is read of a deleted or malformed one."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    version: int = 0


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """The whole collection at `version`: what is in neither tuple does not exist then."""

    items: tuple[T, ...]
    version: int
    malformed: tuple[ObjectReference, ...] = ()


class Changed(msgspec.Struct, Generic[T], frozen=True):
    """An object as it is after it was added or modified."""

    item: T


class Deleted(msgspec.Struct, frozen=True):
    """The object is gone since `reference.version`."""

    reference: ObjectReference


class Bookmark(msgspec.Struct, frozen=True):
    """Everything up to this version has been delivered."""

    version: int


class Down(msgspec.Struct, frozen=True):
    """Nothing arrives for now, and why."""

    why: str
    not_served: bool = False


Item = Listed[T] | Changed[T] | Deleted | Bookmark | Down


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. A watch lasts `watch_s` to twice that; bookmarks come every minute, so silence for `idle_s` is a dead connection."""

    list_timeout_s: float = 30.0
    watch_s: int = 300
    idle_s: float = 90.0
    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0
    first_not_served_pause_s: float = 1.0
    longest_not_served_pause_s: float = 10.0


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = "0"


class _Object(msgspec.Struct):
    metadata: _Metadata


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = "0"
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _ErrorObject(msgspec.Struct):
    code: int = 500


_reference_decoder = msgspec.json.Decoder(_Object)
_page_decoder = msgspec.json.Decoder(_Page)
_event_decoder = msgspec.json.Decoder(_Event)
_error_decoder = msgspec.json.Decoder(_ErrorObject)


def reference_of(raw: bytes) -> ObjectReference:
    """Name and version of an object that may be malformed in all else; empty when even that cannot be read."""
    try:
        metadata = _reference_decoder.decode(raw).metadata
        return ObjectReference(metadata.namespace, metadata.name, metadata.uid, int(metadata.resource_version))
    except (msgspec.DecodeError, ValueError):
        return ObjectReference()


class ListWatch(Generic[T]):
    """One resource, in one namespace or all; iterate over `run()`, in one task."""

    def __init__(
        self,
        client: KubeClient,
        resource: Resource,
        decode: Callable[[bytes], T],
        version_of: Callable[[T], int],
        *,
        on_malformed: Callable[[ObjectReference, str], None],
        namespace: str = "",
        query: Mapping[str, str] = NO_QUERY,
        page_size: int = 500,
        timing: Timing | None = None,
    ) -> None:
        """`decode` raises ValueError or msgspec.DecodeError for a malformed object; `query` holds selectors."""
        self.resource = resource
        self._client = client
        self._decode = decode
        self._version_of = version_of
        self._on_malformed = on_malformed
        self._namespace = namespace
        self._query = dict(query)
        self._page_size = page_size
        self._timing = timing or Timing()
        self._relist = asyncio.Event()
        self._version: int | None = None
        self._waiting: asyncio.Timeout | None = None
        """Around the wait for the next step of the watch."""

    def relist(self) -> None:
        """Forget where the watch stands and list again, now. The next `Listed` is of a list that began after this call."""
        if self._waiting is not None and not self._relist.is_set():
            # Ends the wait now; a task for each step that could be left behind would cost more than reading it.
            self._waiting.reschedule(0.0)
        self._relist.set()

    async def run(self) -> AsyncGenerator[list[Item[T]], None]:
        """What happens, one or more items a step. Never ends by itself; raises nothing but programming errors."""
        pause = _Pause(self._timing)
        fresh = False
        while True:
            if self._relist.is_set():
                self._relist.clear()
                self._version = None
            try:
                if self._version is None:
                    listed = await self._list()
                    if self._relist.is_set():
                        continue
                    self._version, fresh = listed.version, True
                    yield [listed]
                    continue
                began_at = self._version
                async with contextlib.aclosing(self._watch(began_at)) as steps:
                    async for items in self._until_relist(steps):
                        if self._version != began_at:
                            fresh = False
                            pause.reset()
                        yield items
                if self._version == began_at:
                    # A server that ends every watch at once is not asked in a tight loop.
                    await asyncio.sleep(self._timing.first_pause_s)
            except Gone:
                if fresh:
                    # A list that is too old to be watched at once: do not list in a tight loop.
                    await asyncio.sleep(pause.next(False))
                self._version, fresh = None, False
            except ApiError as error:
                not_served = isinstance(error, NotFound) and self._version is None
                if isinstance(error, NotFound) or _TOO_NEW in error.message:
                    self._version = None
                yield [Down(str(error), not_served)]
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._relist.wait(), pause.next(not_served))

    async def _list(self) -> Listed[T]:
        items: list[T] = []
        malformed: list[ObjectReference] = []
        query = {**self._query, "limit": str(self._page_size)}
        while True:
            body = await self._client.list_page(
                self.resource, self._namespace, query=query, timeout_s=self._timing.list_timeout_s
            )
            try:
                page = _page_decoder.decode(body)
                version = int(page.metadata.resource_version)
            except (msgspec.DecodeError, ValueError) as error:
                raise error_of(500, f"not a list: {error}".encode()) from error
            for raw in page.items or ():
                item = self._decoded(bytes(raw), malformed)
                if item is not None:
                    items.append(item)
            if not page.metadata.continue_:
                return Listed(tuple(items), version, tuple(malformed))
            query["continue"] = page.metadata.continue_
            # Decoding a page holds the loop; let the writers have their turn between two of them.
            await asyncio.sleep(0)

    async def _check_reached(self, version: int) -> None:
        """Raises the error that says so when the server has not reached the version."""
        query = {**self._query, "limit": "1", "resourceVersion": str(version)}
        await self._client.list_page(self.resource, self._namespace, query=query, timeout_s=self._timing.list_timeout_s)

    def _decoded(self, raw: bytes, malformed: list[ObjectReference]) -> T | None:
        try:
            return self._decode(raw)
        except (msgspec.DecodeError, ValueError) as error:
            reference = reference_of(raw)
            malformed.append(reference)
            self._on_malformed(reference, str(error))
            return None

    async def _watch(self, version: int) -> AsyncGenerator[list[Item[T]], None]:
        """One watch. Raises Gone when the version is too old, other ApiErrors when it breaks."""
        seconds = self._timing.watch_s
        query = {
            **self._query,
            "resourceVersion": str(version),
            "allowWatchBookmarks": "true",
            # Spread, so that the watches of all kinds do not end together.
            "timeoutSeconds": str(seconds + random.randrange(seconds + 1)),
        }
        steps = self._client.watch(self.resource, self._namespace, query=query, idle_s=self._timing.idle_s)
        async with contextlib.aclosing(steps) as lines_of_step:
            async for lines in lines_of_step:
                items: list[Item[T]] = []
                trouble: ApiError | None = None
                if not lines:
                    # Asked behind the opening: a restore after this answer breaks the watch.
                    await self._check_reached(version)
                    # Nothing may happen for long; that the watch is open again is news.
                    items.append(Bookmark(self._version or 0))
                for line in lines:
                    try:
                        item = self._item(line)
                    except ApiError as error:
                        trouble = error
                        break
                    if item is not None:
                        items.append(item)
                # What came before an error is not to be lost: the place to resume from is already behind it.
                if items:
                    yield items
                if trouble is not None:
                    raise trouble

    def _item(self, line: bytes) -> Item[T] | None:
        try:
            event = _event_decoder.decode(line)
        except msgspec.DecodeError as error:
            raise error_of(500, f"not a watch event: {error}".encode()) from error
        raw = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED":
                malformed: list[ObjectReference] = []
                item = self._decoded(raw, malformed)
                if item is None:
                    self._version = malformed[0].version or self._version
                    return None
                self._version = self._version_of(item)
                return Changed(item)
            case "DELETED":
                reference = reference_of(raw)
                self._version = reference.version or self._version
                return Deleted(reference)
            case "BOOKMARK":
                self._version = reference_of(raw).version or self._version
                return Bookmark(self._version or 0)
            case "ERROR":
                raise error_of(_error_decoder.decode(raw).code, raw)
            case _:
                return None

    async def _until_relist(self, steps: AsyncIterator[list[Item[T]]]) -> AsyncIterator[list[Item[T]]]:
        """The steps, until they end or `relist()` is called."""
        while not self._relist.is_set():
            try:
                async with asyncio.timeout(None) as self._waiting:
                    items = await anext(steps)
            except StopAsyncIteration:
                return
            except TimeoutError:
                if not self._relist.is_set():
                    raise
                return
            finally:
                self._waiting = None
            yield items


class _Pause:
    """Growing pauses with jitter; a kind that is not served has its own, longer ones."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def next(self, not_served: bool) -> float:
        t = self._timing
        first, longest = (
            (t.first_not_served_pause_s, t.longest_not_served_pause_s)
            if not_served
            else (t.first_pause_s, t.longest_pause_s)
        )
        self._failures += 1
        seconds = min(longest, first * 2.0 ** min(self._failures - 1, 30))
        return seconds * random.uniform(0.8, 1.2)
