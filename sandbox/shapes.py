"""Strict reading of what clients send: a dataclass is the shape, and nothing beyond it passes.

Written by hand for the sake of a start well under a second: a validation library would add a third
to the import time of the whole process.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from remit.sandbox.store import Moment, moment

BATCH = 100
TEXT = 4_000
_WHOLE = 2**53
"""JSON numbers beyond this are not exact everywhere."""

S = TypeVar("S")


class Invalid(ValueError):
    """What was sent does not have the shape that the call takes."""


@dataclasses.dataclass(frozen=True)
class Nothing:
    """The shape of a call without a body and without parameters."""


@dataclasses.dataclass(frozen=True)
class Anything:
    """The shape of a JSON object whose fields are not this company's to define."""

    fields: dict[str, object]


def parse(shape: type[S], raw: object, where: str = "the body") -> S:
    """An instance of the dataclass ``shape``, or Invalid naming the first field that is wrong."""
    if not isinstance(raw, dict):
        raise Invalid(f"{where} must be a JSON object")
    if issubclass(shape, Anything):
        return shape(raw)
    hints, required = _fields(typing.cast("Any", shape))
    for name in raw:
        if name not in hints:
            raise Invalid(f"{where} has an unknown field {name!r}")
    for name in required:
        if name not in raw:
            raise Invalid(f"{where} lacks the field {name!r}")
    return shape(**{name: _read(hints[name], value, name) for name, value in raw.items()})


@cache
def _fields(shape: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    hints = typing.get_type_hints(shape)
    fields = dataclasses.fields(shape)
    required = tuple(
        f.name
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    )
    return {f.name: hints[f.name] for f in fields}, required


def _read(hint: Any, value: object, name: str) -> object:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return None if value is None else _read(kinds[0], value, name)
    if dataclasses.is_dataclass(hint):
        return parse(typing.cast("type[Any]", hint), value, f"{name!r}")
    if typing.get_origin(hint) is list:
        (kind,) = typing.get_args(hint)
        return [_read(kind, item, name) for item in _batch(value, name)]
    return _READERS[hint](value, name)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT:
        raise Invalid(f"{name!r} must be a text of 1 to {TEXT} characters")
    return value


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _WHOLE:
        raise Invalid(f"{name!r} must be a whole number")
    return value


def _number(value: object, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Invalid(f"{name!r} must be a number")
    return float(value)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        raise Invalid(f"{name!r} must be true or false")
    return value


def _moment(value: object, name: str) -> Moment:
    try:
        return moment(_text(value, name))
    except (ValueError, OverflowError):
        raise Invalid(f"{name!r} must be an RFC 3339 time with its offset") from None


def _batch(value: object, name: str) -> list[object]:
    if not isinstance(value, list) or len(value) > BATCH:
        raise Invalid(f"{name!r} must be a list of at most {BATCH} items")
    return value


def _values(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise Invalid(f"{name!r} must be an object whose values are texts")
    return value


def _object(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Invalid(f"{name!r} must be an object")
    return value


_READERS: dict[Any, Callable[[object, str], object]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    Moment: _moment,
    dict[str, str]: _values,
    dict[str, object]: _object,
}
