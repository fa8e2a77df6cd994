"""Kinds of jobs that other packages bring: entry points of the group `sluice.job_kinds`, each named like its framework in the configuration.

An entry point is a JobKind, or a class without arguments that makes one. A package that is installed but cannot be used is refused at the start, by name:
a kind that silently is not managed would run without quota.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from shared.api.names import JOB_KIND_PLUGINS
from shared.jobs.protocol import JobKind

_TEXTS = ("version", "kind", "plural", "framework")
_METHODS = tuple(name for name, value in vars(JobKind).items() if callable(value) and not name.startswith("_"))


class PluginError(RuntimeError):
    """The entry point that cannot be used, and why."""


def found(built_in: Iterable[JobKind], points: Iterable[EntryPoint] | None = None) -> tuple[JobKind, ...]:
    """The kinds of all packages that are installed, in the order of their names. Raises PluginError."""
    taken = {kind.framework: "built in" for kind in built_in}
    kinds: list[JobKind] = []
    chosen = entry_points(group=JOB_KIND_PLUGINS) if points is None else points
    for point in sorted(chosen, key=lambda point: point.name):
        kind = _loaded(point)
        if kind.framework in taken:
            raise PluginError(f"{_named(point)}: there is a job kind {kind.framework} already: {taken[kind.framework]}")
        taken[kind.framework] = point.value
        kinds.append(kind)
    return tuple(kinds)


def _loaded(point: EntryPoint) -> JobKind:
    try:
        loaded = point.load()
        kind: JobKind = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:
        raise PluginError(f"{_named(point)}: {error}") from error
    missing = [name for name in _TEXTS if not (isinstance(getattr(kind, name, None), str) and getattr(kind, name))]
    missing += [name for name in _METHODS if not callable(getattr(kind, name, None))]
    if missing:
        raise PluginError(f"{_named(point)}: it is no JobKind, it lacks {', '.join(missing)}")
    if "." not in kind.group:
        raise PluginError(f"{_named(point)}: {kind.group!r} is no API group of a custom resource")
    if kind.framework != point.name:
        raise PluginError(f"{_named(point)}: its framework is {kind.framework!r}; both must be the same")
    return kind


def _named(point: EntryPoint) -> str:
    return f"entry point {point.name!r} of {JOB_KIND_PLUGINS} ({point.value})"
