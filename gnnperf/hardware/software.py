"""The software that runs a network."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnperf.hardware.checks import one_of, short

FRAMEWORKS = ("torch", "onnxruntime", "tensorflow")
MEMORY_FORMATS = ("channels_first", "channels_last")
ATTENTION_IMPLEMENTATIONS = ("fused", "decomposed")
DEFAULT_VERSIONS = {"torch": "2.9", "onnxruntime": "1.23", "tensorflow": "2.20"}


@dataclass(frozen=True)
class Software:
    """What runs the network.

    Attributes:
        framework: One of ``FRAMEWORKS``.
        version: The framework's, such as ``2.9``, ``2.9.1`` or ``2.9.1+cu128``; empty for the one in
            ``DEFAULT_VERSIONS``, which then takes its place.
        compiled: Whether a compiler (``torch.compile``, XLA) fuses ops.
        memory_format: One of ``MEMORY_FORMATS``, the layout of images.
        attention_implementation: One of ``ATTENTION_IMPLEMENTATIONS``, or ``None`` for the framework's default.

    Raises:
        ValueError: If a field has a value that is not allowed.
    """

    framework: str = "torch"
    version: str = ""
    compiled: bool = False
    memory_format: str = "channels_first"
    attention_implementation: str | None = None

    def __post_init__(self) -> None:
        one_of("framework", self.framework, FRAMEWORKS)
        one_of("memory_format", self.memory_format, MEMORY_FORMATS)
        if self.attention_implementation is not None:
            one_of("attention_implementation", self.attention_implementation, (*ATTENTION_IMPLEMENTATIONS, None))
        if not isinstance(self.compiled, bool):
            raise ValueError(f"compiled must be True or False, not {short(self.compiled)}")
        if self.version == "":
            object.__setattr__(self, "version", DEFAULT_VERSIONS[self.framework])
        if not isinstance(self.version, str) or not re.fullmatch(
            r"\d{1,4}\.\d{1,4}([.+][0-9A-Za-z][0-9A-Za-z.+_-]*)?", self.version
        ):
            raise ValueError(
                f"version must be a string such as {DEFAULT_VERSIONS[self.framework]!r}, not {short(self.version)}"
            )
        if self.compiled and self.framework == "torch" and self.release < (2, 0):
            raise ValueError(f"compiled needs torch 2.0 or later, not {self.version}: torch.compile came with 2.0")

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = re.findall(r"\d+", self.version)[:2]
        return int(major), int(minor)

    @property
    def attention(self) -> str:
        """The attention implementation that runs: torch fuses by default since 2.0, the other frameworks do not."""
        if self.attention_implementation is not None:
            return self.attention_implementation
        return "fused" if self.framework == "torch" and self.release >= (2, 0) else "decomposed"
