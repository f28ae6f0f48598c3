"""Importing the package costs nothing; each public name brings what it needs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import gnnperf

CHECK = """
import sys
import gnnperf
heavy = {"torch", "torch_geometric", "pandas", "networkx", "rich", "matplotlib", "transformers"} & sys.modules.keys()
assert not heavy, heavy
from gnnperf import capture, load, zoo, Device, Software
heavy = {"torch_geometric", "pandas", "rich", "matplotlib", "transformers"} & sys.modules.keys()
assert not heavy, heavy
"""


def test_nothing_heavy_is_imported_before_it_is_used():
    subprocess.run([sys.executable, "-c", CHECK], check=True)


def test_the_version_is_that_of_the_distribution():
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == gnnperf.__version__
