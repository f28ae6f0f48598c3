import pandas as pd
import pytest

from experiments.evaluate import evaluate
from experiments.train import train

PREDICTORS = ["roofline, spec sheet only", "roofline, calibrated by file", "log-linear by file", "LightGBM", "gnnperf"]


@pytest.fixture
def weights(configure, tmp_path):
    train(configure("train"))
    return str(tmp_path / "train" / "weights")


def test_all_predictors_stand_in_one_table(configure, tmp_path, weights, capsys):
    table = evaluate(configure("evaluate", weights=weights))
    assert table.index.tolist() == PREDICTORS
    assert table["rows"].tolist() == [9] * 5
    folder = tmp_path / "evaluate"
    assert {path.name for path in folder.iterdir()} == {
        *(f"test{part}.csv" for part in ("", "_inference", "_training", "_gpu", "_cpu")),
        *(f"test_by_{part}.csv" for part in ("family", "device", "file", "dominant_op_class")),
        "test_predicted_by_op_class.csv",
        "evaluate_config.json",
        "evaluation.json",
        "test_scatter_gnnperf.png",
    }
    read = pd.read_csv(folder / "test.csv", index_col=0)
    assert read["MAPE %"].tolist() == pytest.approx(table["MAPE %"].tolist())
    families = pd.read_csv(folder / "test_by_family.csv", index_col=0)
    assert families["rows"].to_dict() == {"resnet": 3, "mambaout": 3, "byobnet": 3}
    assert families["LightGBM"].mean() == pytest.approx(table["mean over families %"]["LightGBM"])
    gpu, cpu, training, inference = (
        pd.read_csv(folder / f"test_{part}.csv", index_col=0)["MAPE %"]
        for part in ("gpu", "cpu", "training", "inference")
    )
    assert ((gpu + cpu) / 2).tolist() == pytest.approx(inference.tolist())
    assert ((gpu + cpu + training) / 3).tolist() == pytest.approx(table["MAPE %"].tolist())
    printed = capsys.readouterr().out
    ratio = table["MAPE %"]["gnnperf"] / table["MAPE %"]["LightGBM"]
    assert f"test rows: gnnperf against LightGBM: MAPE {table['MAPE %']['gnnperf']:.1f} %" in printed
    assert f"(ratio {ratio:.2f})" in printed
    assert "skipped      3  no measurement" in printed and "test rows of training steps\n" in printed


def test_groups_of_the_split_have_tables_of_their_own(configure, tmp_path, capsys):
    split = {"split": "unseen_devices", "split.devices": "[i9-10940x]"}
    train(configure("train", **split))
    table = evaluate(configure("evaluate", weights=str(tmp_path / "train" / "weights"), **split))
    folder = tmp_path / "evaluate"
    unseen, seen = (pd.read_csv(folder / f"test_of_{name}_families.csv", index_col=0) for name in ("unseen", "seen"))
    assert unseen["rows"].tolist() == [3] * 5 and seen["rows"].tolist() == [5] * 5
    assert ((3 * unseen["MAPE %"] + 5 * seen["MAPE %"]) / 8).tolist() == pytest.approx(table["MAPE %"].tolist())
    assert "test rows of unseen families" in capsys.readouterr().out


def test_several_weights_are_compared(configure, tmp_path, weights):
    train(configure("train", model="opwise", folder=str(tmp_path / "opwise")))
    table = evaluate(configure("evaluate", f"weights=[{weights},{tmp_path}/opwise/weights]"))
    assert table.index.tolist()[-2:] == ["gnnperf (train)", "gnnperf (opwise)"]
    assert len(list((tmp_path / "evaluate").glob("*.png"))) == 2


def test_weights_that_may_have_seen_test_rows_are_refused(configure, tmp_path):
    train(configure("train", "split=all", folder=str(tmp_path / "all")))
    with pytest.raises(ValueError, match="may have seen test rows"):
        evaluate(configure("evaluate", weights=f"{tmp_path}/all/weights"))


def test_a_split_without_test_rows_and_missing_weights_are_errors(configure, weights):
    with pytest.raises(ValueError, match="no test rows"):
        evaluate(configure("evaluate", "split=all", weights=weights))
    with pytest.raises(ValueError, match="there are no model weights"):
        evaluate(configure("evaluate", weights="/nowhere"))
