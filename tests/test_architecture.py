"""Who may import whom, read from the sources."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("gnnperf", "data_collection", "experiments")
# Each part of the library imports only what stands before it.
READING_ORDER = """files graph hardware output cost capture features records networks packed_graphs graph_store dataset
    splits model metrics aggregates baselines batches checkpoint distributed training streams trainer memory weights
    sources prediction report measure calibration sparsity commands cli __main__""".split()
ALLOWED = {
    "gnnperf": {"gnnperf"},
    "data_collection": {"gnnperf", "data_collection"},
    "experiments": {"gnnperf", "data_collection", "experiments"},
}


def _sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Dotted names that a file imports anywhere, ``from a import b`` as ``a.b``."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _parts(names: set[str]) -> set[str]:
    """The parts of the library among imported names."""
    return {name.split(".")[1] for name in names if name.startswith("gnnperf.")}


def _part(path: Path) -> str:
    return path.relative_to(ROOT / "gnnperf").parts[0].removesuffix(".py")


LIBRARY = [path for path in _sources("gnnperf") if path != ROOT / "gnnperf" / "__init__.py"]


def test_there_is_something_to_read():
    assert all(_sources(package) for package in PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_depend_one_way(package):
    for path in _sources(package):
        ours = {name.partition(".")[0] for name in _imports(path)} & {*PACKAGES, "tests"}
        assert ours <= ALLOWED[package], path


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_library_is_read_from_top_to_bottom(path):
    part = _part(path)
    assert part in READING_ORDER, "give the new part its place in READING_ORDER"
    above = set(READING_ORDER[: READING_ORDER.index(part) + 1])
    assert _parts(_imports(path)) & set(READING_ORDER) <= above


@pytest.mark.parametrize("part", ["graph", "hardware"])
def test_the_first_parts_import_nothing_of_ours_but_the_reading_of_files(part):
    sources = _sources(f"gnnperf/{part}")
    assert sources
    for path in sources:
        assert _parts(_imports(path)) <= {part, "files"}, path


def test_the_model_sees_tensors_only():
    assert not _parts(_imports(ROOT / "gnnperf" / "model.py"))


@pytest.mark.parametrize(
    ("module", "packages"),
    [
        ("hydra", {"data_collection", "experiments"}),
        ("omegaconf", {"data_collection", "experiments"}),
        ("wandb", {"experiments"}),
    ],
)
def test_tools_of_experiments_stay_there(module, packages):
    for package in set(PACKAGES) - packages:
        for path in _sources(package):
            assert module not in {name.partition(".")[0] for name in _imports(path)}, path


def test_wandb_is_imported_by_the_logger_alone():
    users = [p for p in _sources("experiments") if "wandb" in {name.partition(".")[0] for name in _imports(p)}]
    assert users == [ROOT / "experiments" / "loggers.py"]
