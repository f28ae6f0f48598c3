import torch

from gnnperf.capture.storages import Storages


def _empty(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, device="meta")


def test_views_share_a_key_and_no_key_is_used_twice() -> None:
    storages, seen = Storages(), set()
    for _ in range(100):  # torch uses the addresses again
        tensor = _empty(4, 3)
        key = storages.key(tensor)
        assert storages.key(tensor[1:].T) == key and storages.is_known(tensor)
        assert key not in seen
        seen.add(key)
    assert not storages.is_known(_empty(4, 3))


def test_memory_is_given_back_when_the_last_view_goes() -> None:
    storages = Storages()
    first = _empty(10)
    storages.take(first)
    storages.tick()
    view = first[2:]
    second = _empty(5)
    storages.take(second)
    storages.take(view)  # nothing new
    storages.tick()
    del first
    storages.tick()
    del view
    storages.tick()
    assert storages.lives() == [(0, 40, 0, 2), (1, 20, 1, 3)]


def test_what_no_op_needed_is_not_listed() -> None:
    storages = Storages()
    kept = _empty(0)
    storages.take(kept)
    waste = _empty(8)
    storages.take(waste)
    del waste
    storages.tick()
    assert storages.lives() == []


def test_a_tensor_can_stand_for_another() -> None:
    storages = Storages()
    constant, moved = torch.zeros(3), _empty(3)
    storages.identify(moved, constant)
    assert storages.key(moved) == storages.key(constant)
