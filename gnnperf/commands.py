"""What the commands do. Heavy imports wait until something has been checked that may be wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gnnperf.hardware import Device, Software, catalogue, load_device
from gnnperf.output import check_writable, write_whole

if TYPE_CHECKING:
    from gnnperf.graph import ComputationGraph
    from gnnperf.prediction import Prediction


def predict(arguments: argparse.Namespace) -> None:
    """``gnnperf predict``: print a table, JSON or CSV, and write the files that are asked for.

    Raises:
        ValueError: If something that the user gave is wrong.
    """
    software = Software("torch", arguments.torch_version, arguments.compiled, arguments.memory_format)
    devices = [load_device(device) for device in arguments.devices]
    for path in _outputs(arguments):
        check_writable(path)
    predictions = _predictions(arguments, devices, software)
    max_batches = _max_batches(arguments, predictions) if arguments.max_batch else None
    for message in dict.fromkeys(message for p in predictions for message in p.warnings):
        _warn(message)
    with _progress("Writing"):
        files = {path: render(predictions) for path, render in _outputs(arguments).items()}
    for path, content in files.items():
        write_whole(path, content)
    _print(arguments, predictions, max_batches)


def devices(arguments: argparse.Namespace) -> None:
    """``gnnperf devices``: list the catalogue."""
    if arguments.json:
        print(json.dumps([asdict(device) for device in catalogue().values()], indent=1, allow_nan=False))
        return
    from gnnperf.report.device_table import print_devices

    print_devices(list(catalogue().values()), sys.stdout)


def graph(arguments: argparse.Namespace) -> None:
    """``gnnperf graph``: save the graph of a network.

    Raises:
        ValueError: If something that the user gave is wrong.
    """
    check_writable(arguments.output)
    captured = _graph(arguments)
    for message in captured.warnings:
        _warn(message)
    write_whole(arguments.output, captured.to_json())
    print(f"{arguments.output}: {len(captured.nodes)} ops, {captured.parameter_count:,} parameters")


def _predictions(arguments: argparse.Namespace, devices: Sequence[Device], software: Software) -> list[Prediction]:
    with _progress("Loading the model"):
        from gnnperf.prediction import predict
        from gnnperf.weights import load_weights

        weights = load_weights(arguments.weights)
    captured = _graph(arguments)
    with _progress("Predicting"):
        return predict(captured, devices, software, weights=weights)


def _max_batches(arguments: argparse.Namespace, predictions: Sequence[Prediction]) -> list[int]:
    """The largest batch that fits each device; 0 where none does.

    At batch 1 some networks run other ops, from which larger batches do not follow: those are captured again.

    Raises:
        ValueError: If the network does not follow its batch.
    """
    from gnnperf.memory import largest_batch_size

    graph = predictions[0].graph
    if graph.rescale_error and not Path(arguments.source).exists():
        graph = _graph(arguments, batch_size=_OTHER_BATCH_SIZE)
    with _progress("Searching for the largest batch"):
        largest = [largest_batch_size(graph, p.device, p.software) for p in predictions]
    return [batch or (p.graph.batch_size if p.fits else 0) for batch, p in zip(largest, predictions, strict=True)]


_OTHER_BATCH_SIZE = 4


def _graph(arguments: argparse.Namespace, batch_size: int | None = None) -> ComputationGraph:
    dims = dict(arguments.dims)
    if len(dims) < len(arguments.dims):
        raise ValueError("a dimension is given twice with --dim")
    # What a network prints while it is made must not get between the lines that we print.
    with _progress(f"Capturing {arguments.source}"), redirect_stdout(sys.stderr):
        from gnnperf.sources import graph_of

        return graph_of(
            arguments.source,
            batch_size=batch_size or arguments.batch_size,
            image_size=arguments.image_size,
            mode=arguments.mode,
            precision=arguments.precision,
            dims=dims,
            optimizer=arguments.optimizer,
        )


Render = Callable[[Sequence["Prediction"]], str | bytes]


def _outputs(arguments: argparse.Namespace) -> dict[str, Render]:
    """The files that are asked for, and what makes their content.

    Raises:
        ValueError: If a file is asked for twice, or a picture of a kind that cannot be drawn.
    """

    def html(predictions: Sequence[Prediction]) -> str:
        from gnnperf.report.page import to_html

        return to_html(arguments.source, predictions)

    def trace(predictions: Sequence[Prediction]) -> str:
        from gnnperf.report.chrome_trace import to_trace

        return to_trace(arguments.source, predictions)

    def plot(predictions: Sequence[Prediction]) -> bytes:
        from gnnperf.report.plot import to_plot

        return to_plot(arguments.source, predictions, Path(arguments.plot).suffix)

    asked: list[tuple[str | None, Render]] = [(arguments.html, html), (arguments.trace, trace), (arguments.plot, plot)]
    outputs = {path: render for path, render in asked if path is not None}
    if len(outputs) < sum(path is not None for path, _ in asked):
        raise ValueError("two outputs would go to the same file: give each a name of its own")
    if arguments.plot is not None:
        _check_picture(arguments.plot)
    return outputs


def _check_picture(path: str) -> None:
    from gnnperf.report.pictures import check_suffix

    check_suffix(path)


def _print(arguments: argparse.Namespace, predictions: Sequence[Prediction], max_batches: Sequence[int] | None) -> None:
    if arguments.json or arguments.csv:
        from gnnperf.report.export import to_csv, to_json

        text = to_json(arguments.source, predictions, max_batches) + "\n" if arguments.json else to_csv(predictions)
        sys.stdout.write(text)
        return
    from gnnperf.report.table import print_table

    print_table(arguments.source, predictions, sys.stdout, arguments.top, max_batches)


def _warn(message: str) -> None:
    print(f"gnnperf: warning: {one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """A message in one line that no terminal takes for orders: what does not print is escaped."""
    line = " ".join(message.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


@contextmanager
def _progress(what: str) -> Iterator[None]:
    """A line on the terminal that moves while something takes its time; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(f"{what} ...")):
        yield
