import re
from pathlib import Path

import pytest

from data_collection.sources import REPOSITORIES, SOURCES, Options, sources_of

FILES = {
    "timm's networks": "results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv",
    "torchvision's networks": "results/new/TITAN Xp_float_model_inference_benchmark.csv",
    "transformers of NeuSight": "scripts/asplos/label/Tesla_T4/gpt2_large-inf-1024-4.json",
    "kernels of NeuSight": "scripts/asplos/data/dataset_amd/test/collect/bmm/p2.4.1/x.csv",
    "layers of Justus et al.": "prediction_model/data/Data_dense_K40.parquet",
    "cells of HELP": "data/nasbench201/latency/pixel2.pt",
}


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def test_every_repository_has_sources_and_every_source_a_repository():
    assert {source.repository for source in SOURCES} == set(REPOSITORIES)
    assert [source.title for source in SOURCES] == list(FILES)


@pytest.mark.parametrize("title", FILES)
def test_clones_are_known_by_their_folders(tmp_path, title):
    _touch(tmp_path / FILES[title])
    (source,) = sources_of(tmp_path)
    assert source.title == title
    assert sources_of(tmp_path, [source.repository]) == [source]
    for other in REPOSITORIES.keys() - {source.repository}:
        with pytest.raises(ValueError, match=rf"has one of .* \({re.escape(REPOSITORIES[other])}\)$"):
            sources_of(tmp_path, [other])


def test_a_repository_may_hold_several_kinds(tmp_path):
    for title in ("transformers of NeuSight", "kernels of NeuSight"):
        _touch(tmp_path / FILES[title])
    assert [source.title for source in sources_of(tmp_path, ["neusight"])] == [
        "transformers of NeuSight",
        "kernels of NeuSight",
    ]


def test_folders_that_are_no_clones_are_errors(tmp_path):
    with pytest.raises(ValueError, match=r"there is no folder '.*none'"):
        sources_of(tmp_path / "none")
    with pytest.raises(ValueError, match=r"no measurements in .* has one of results/benchmark-\*\.csv \(https"):
        sources_of(tmp_path)


def test_a_damaged_clone_is_an_error_of_its_importer(tmp_path):
    _touch(tmp_path / FILES["cells of HELP"])
    (source,) = sources_of(tmp_path)
    with pytest.raises(ValueError, match=r"str_arch2idx\.pt: not a file of plain values"):
        source.read(tmp_path, Options())
