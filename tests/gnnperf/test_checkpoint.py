import pytest
import torch

from gnnperf.checkpoint import read_checkpoint, write_checkpoint


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "checkpoint.pt"
    write_checkpoint(path, {"epoch": 1, "tensor": torch.arange(3)})
    write_checkpoint(path, {"epoch": 2, "tensor": torch.arange(3), "numbers": [{"loss": 0.5}]})
    state = read_checkpoint(path)
    assert state["epoch"] == 2 and state["tensor"].tolist() == [0, 1, 2] and state["numbers"] == [{"loss": 0.5}]
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.pt"]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.99])
def test_half_a_checkpoint_is_an_error_with_the_remedy(tmp_path, part):
    path = tmp_path / "checkpoint.pt"
    write_checkpoint(path, {"tensor": torch.arange(1000)})
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(ValueError, match="delete it to start over") as error:
        read_checkpoint(path)
    assert "\n" not in str(error.value)


def test_something_else_is_an_error(tmp_path):
    path = tmp_path / "checkpoint.pt"
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="holds something else"):
        read_checkpoint(path)
    path.write_text("no checkpoint")
    with pytest.raises(ValueError, match="delete it to start over"):
        read_checkpoint(path)
