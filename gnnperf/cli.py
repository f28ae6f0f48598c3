"""The command line: what can be asked for, and how it ends."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from gnnperf import __version__, commands
from gnnperf.graph import MAX_INTEGER, MODES, OPTIMIZERS, PRECISIONS
from gnnperf.hardware import MEMORY_FORMATS

USER_ERROR = 2
INTERRUPTED = 130  # 128 + SIGINT
PIPE_CLOSED = 141  # 128 + SIGPIPE
# Nothing here may reach for the network, whatever a library would like to look up.
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments after the program's name; by default those of the process.

    Returns:
        The exit code: 0; 2 after an error that the user can mend, which is one line on stderr; 130 if interrupted.
    """
    try:
        try:
            arguments = _parser().parse_args(argv)
        except SystemExit:  # --help and --version; what is wrong raises ValueError
            return 0
        with _quiet_libraries():
            arguments.run(arguments)
            sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        print("gnnperf: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError, MemoryError) as error:
        print(f"gnnperf: error: {_one_line(error)}", file=sys.stderr)
        return USER_ERROR
    return 0


class _Parser(argparse.ArgumentParser):
    """Argparse whose errors go the way of all others."""

    def error(self, message: str) -> NoReturn:
        """Raise a ``ValueError``."""
        raise ValueError(f"{message} (`{self.prog} --help` lists all options)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gnnperf",
        description="How long will this network take on that device, and where does the time go?",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"gnnperf {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_predict(subparsers)
    _add_devices(subparsers)
    _add_graph(subparsers)
    return parser


def _add_predict(subparsers: argparse._SubParsersAction) -> None:
    text = "predict the time of a network on one device or several"
    parser = subparsers.add_parser("predict", help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=commands.predict)
    _add_source(parser)
    parser.add_argument(
        "--device",
        dest="devices",
        metavar="D",
        action="append",
        required=True,
        help="an id that `gnnperf devices` lists, or a YAML file; again for more devices",
    )
    software = parser.add_argument_group("software")
    software.add_argument("--compiled", action="store_true", help="with torch.compile")
    software.add_argument("--memory-format", choices=MEMORY_FORMATS, default=MEMORY_FORMATS[0], help="of images")
    software.add_argument("--torch-version", metavar="V", default="", help="such as 2.9, the default")
    parser.add_argument("--max-batch", action="store_true", help="also find the largest batch that fits each device")
    output = parser.add_argument_group("output")
    formats = output.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="one JSON object on stdout, and nothing else")
    formats.add_argument("--csv", action="store_true", help="a row for every node and device on stdout")
    output.add_argument("--html", metavar="F", help="write a web page")
    output.add_argument("--trace", metavar="F", help="write a Chrome trace")
    output.add_argument("--plot", metavar="F", help="write a picture: .png, .svg or .pdf")
    output.add_argument("--top", metavar="N", type=_positive, default=15, help="parts in the table (15)")
    parser.add_argument("--weights", metavar="FOLDER", help="a trained model instead of the one that gnnperf carries")


def _add_devices(subparsers: argparse._SubParsersAction) -> None:
    text = "list the devices of the catalogue"
    parser = subparsers.add_parser("devices", help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=commands.devices)
    parser.add_argument("--json", action="store_true", help="all that is known, as a JSON list")


def _add_graph(subparsers: argparse._SubParsersAction) -> None:
    text = "capture a network and save its graph"
    parser = subparsers.add_parser("graph", help=text, description=text, allow_abbrev=False)
    parser.set_defaults(run=commands.graph)
    _add_source(parser)
    parser.add_argument("-o", "--output", metavar="F", required=True, help="file to write, such as graph.json")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a zoo name, a file, or package.module:factory")
    source = parser.add_argument_group("source")
    source.add_argument("--batch-size", metavar="N", type=_positive, help="samples in the input")
    source.add_argument("--image-size", metavar="N", type=_positive, help="height and width of images in pixels")
    source.add_argument("--mode", choices=MODES, help="inference by default")
    source.add_argument("--precision", choices=PRECISIONS, help="fp32 by default")
    source.add_argument("--optimizer", choices=OPTIMIZERS, help="whose update ends a training step; none by default")
    source.add_argument(
        "--dim",
        dest="dims",
        metavar="NAME=N",
        type=_dimension,
        action="append",
        default=[],
        help="size of a further input dimension, such as seq=128",
    )


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    if value > MAX_INTEGER:
        raise argparse.ArgumentTypeError(f"must be a whole number of 64 bits, not {text!r}")
    return value


def _dimension(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be such as seq=128, not {text!r}")
    return name, _positive(size)


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Keep warnings and log lines of libraries from the user, and libraries from the network."""
    before = logging.root.manager.disable
    added = [name for name in _OFFLINE if name not in os.environ]
    os.environ.update({name: _OFFLINE[name] for name in added})
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        for name in added:
            os.environ.pop(name, None)


def _forget_stdout() -> None:
    """Let Python's own flush at the end write to nowhere instead of to a closed pipe."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out of memory"
    return commands.one_line(str(error)) or type(error).__name__


if __name__ == "__main__":
    sys.exit(main())
