import sys

import pytest

from data_collection.mains import hydra_writes_once, one_line_errors, only_first_prints
from gnnperf.distributed import Ranks


@one_line_errors
def mistaken(config):
    raise ValueError("first line\nsecond line")


@pytest.mark.parametrize(("rank", "said"), [(None, "error: first line second line\n"), ("1", "")])
def test_one_process_says_what_is_wrong(rank, said, monkeypatch, capsys):
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    with pytest.raises(SystemExit) as error:
        mistaken(None)
    assert error.value.code == 2 and capsys.readouterr().err == said


def test_other_ranks_print_nothing(capsys):
    for rank in (0, 1):
        with only_first_prints(Ranks(rank, 2)):
            print(f"rank {rank}")
    assert capsys.readouterr().out == "rank 0\n"


def test_hydra_writes_files_in_the_first_process_alone(monkeypatch):
    for rank, more in (("0", 0), ("1", 3)):
        monkeypatch.setattr(sys, "argv", ["train"])
        monkeypatch.setenv("RANK", rank)
        hydra_writes_once()
        assert len(sys.argv) == 1 + more
