"""Take the name of a layer apart."""

from __future__ import annotations

import difflib

from gnnperf.networks.layers.kinds import ACTIVATIONS, KINDS, PADDING_WORDS, Layer


def parse(source: str, text: str) -> Layer:
    """The layer that ``text``, the part of ``source`` after the prefix, describes.

    Raises:
        ValueError: If the kind, a field or a flag is unknown, a field is missing, given twice or out of range, or there
            are several activations.
    """
    name, *parts = text.split(",")
    if name not in KINDS:
        raise ValueError(
            f"{source} names no kind of layer: write layer:KIND and its fields; the kinds are {', '.join(KINDS)}"
        )
    defaults = KINDS[name].fields
    fields = _fields(source, name, parts)
    given = {**defaults, **fields}
    if missing := [field for field, value in given.items() if value is None]:
        raise ValueError(f"{source} lacks {', '.join(missing)}")
    flags = frozenset(KINDS[name].flags) & fields.keys()
    if len(flags & ACTIVATIONS.keys()) > 1:
        raise ValueError(f"{source} has several activations: {', '.join(sorted(flags & ACTIVATIONS.keys()))}")
    word = given.get("padding", 0)
    padding = str(word) if word in PADDING_WORDS else _number(source, "padding", word, least=0)
    sizes = {
        field: _number(source, field, given[field], least=0 if default == 0 else 1)
        for field, default in defaults.items()
        if field != "padding"
    }
    return Layer(name, sizes, padding, flags)


def _fields(source: str, kind: str, parts: list[str]) -> dict[str, str]:
    """The text of every field, and empty text for every flag."""
    fields: dict[str, str] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name not in (KINDS[kind].fields if equals else KINDS[kind].flags):
            raise _unknown_part(source, kind, name)
        if name in fields:
            raise ValueError(f"{source} gives {name} twice")
        fields[name] = value
    return fields


def _number(source: str, name: str, value: object, least: int) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        words = f", {' or '.join(PADDING_WORDS)}" if name == "padding" else ""
        raise ValueError(f"{source}: {name} must be a whole number of at least {least}{words}, not {text!r}")
    return int(text)


def _unknown_part(source: str, kind: str, name: str) -> ValueError:
    fields, flags = KINDS[kind].fields, KINDS[kind].flags
    if name in flags:
        return ValueError(f"{source}: {name} is a flag and takes no value")
    if name in fields:
        return ValueError(f"{source}: {name} is given without a value")
    known = [*(f"{field}=" for field in fields), *flags]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.7)
    hint = f"did you mean {', '.join(near)}?" if near else f"{kind} takes {', '.join(known)}"
    return ValueError(f"{source} has no field {name!r}: {hint}")
