"""Dataclasses to JSON text and back, checked against the annotations.

What is read from disk is data and may be truncated or hostile: everything that does not match the
annotations is refused as `RecordError`, naming the field; unknown keys are ignored, so that a newer
writer of the same schema version may add optional fields.
"""

import dataclasses
import json
import math
import os
import tempfile
import threading
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from dmad_sweep.errors import RecordError

T = TypeVar("T")

_reading_umask = threading.Lock()

LARGEST_FILE_BYTES = 64 * 2**20
"""A record with 1000 cycles takes 434 KiB; a file of more than this is none, and may not fit into memory."""

LARGEST_INTEGER = 2**63 - 1
"""What databases hold; a larger number of bytes is no measurement."""


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text of a dataclass instance. Raises ValueError for NaN and infinity: absent is None."""
    separators = None if indent else (",", ":")
    return json.dumps(
        dataclasses.asdict(value), indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
    )


def from_json(kind: type[T], text: str | bytes, *, origin: str = "JSON text") -> T:
    """Decode `text` into the dataclass `kind`; `origin` names the source in errors.

    Raises:
        RecordError: not JSON, nested too deeply, not finite, too large, of another schema version, or not
            of the annotated types.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise RecordError(f"{origin}: nested too deeply to be one of our records") from None
    except ValueError as error:
        raise RecordError(f"{origin}: not valid JSON ({error})") from None
    return typing.cast(T, _decode(kind, data, origin))


def write_json(path: Path, value: Any) -> None:
    """Write atomically: readers see the old file or the whole new one, also after a power cut."""
    write_atomically(path, to_json(value, indent=1) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to a temporary neighbour, flush it to disk, then rename it over `path`."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fchmod(stream.fileno(), 0o666 & ~_umask())  # mkstemp's is for its owner alone
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Of this process; it can only be read by setting it."""
    with _reading_umask:
        mask = os.umask(0o077)
        os.umask(mask)
    return mask


def read_json(kind: type[T], path: Path) -> T:
    """Read and decode a file. Raises RecordError, also when it is missing, unreadable, huge or no file."""
    try:
        with path.open("rb") as stream:
            text = stream.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise RecordError(f"{path}: cannot be read ({error.strerror})") from error
    if len(text) > LARGEST_FILE_BYTES:
        raise RecordError(f"{path}: larger than {LARGEST_FILE_BYTES >> 20} MiB, which no record of ours is")
    return from_json(kind, text, origin=str(path))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _decode(kind: Any, data: Any, where: str) -> Any:
    if kind is Any:
        return data
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if data is None and type(None) in arguments:
            return None
        options = [option for option in arguments if option is not type(None)]
        return _decode(options[0], data, where)
    if origin is typing.Literal:
        if data in arguments:
            return data
        raise RecordError(f"{where}: {data!r:.80} is not one of {', '.join(map(repr, arguments))}")
    if origin is list:
        return [
            _decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(_expect(list, data, where))
        ]
    if origin is dict:
        return {
            key: _decode(arguments[1], item, f"{where}.{key:.80}")
            for key, item in _expect(dict, data, where).items()
        }
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, _expect(dict, data, where), where)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        try:
            return float(data)
        except OverflowError:
            raise RecordError(f"{where}: number too large") from None
    return _expect(kind, data, where)


def _decode_dataclass(kind: Any, data: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name == "schema_version":
            _require_version(data.get(field.name, field.default), field.default, where)
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], f"{where}: {field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise RecordError(f"{where}: field {field.name!r} is missing")
    return kind(**values)


def _require_version(found: Any, ours: Any, where: str) -> None:
    """Before any other field is looked at: another version may mean something else by the same name."""
    if type(found) is not int or found == ours:
        return  # what is no number is refused as every field is
    writer = "a newer dmad_sweep wrote it, so upgrade" if found > ours else "an older dmad_sweep wrote it"
    raise RecordError(f"{where}: schema version {str(found)[:20]} cannot be read, only {ours} ({writer})")


def _expect(kind: Any, data: Any, where: str) -> Any:
    if type(data) is not kind:
        raise RecordError(f"{where}: expected {kind.__name__}, got {type(data).__name__}")
    if kind is int and abs(data) > LARGEST_INTEGER:
        raise RecordError(f"{where}: number too large")
    if kind is float and not math.isfinite(data):  # JSON's 1e999
        raise RecordError(f"{where}: number too large")
    if kind is str and not data.isascii():
        try:
            data.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which no file or database takes
            raise RecordError(f"{where}: not valid Unicode") from None
    return data
