from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from data_collection.justus_results import import_justus
from gnnperf import networks
from gnnperf.aggregates import node_table
from gnnperf.dataset import build_dataset
from gnnperf.hardware import device_ids

OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Momentum", "None", "RMSProp", "SGD")
ACTIVATIONS = ("None", "relu", "sigmoid", "tanh")
CONVOLUTION = {
    "batchsize": 2,
    "channels_in": 3,
    "channels_out": 4,
    "kernelsize": 3,
    "matsize": 7,
    "padding": 1,
    "strides": 2,
    "use_bias": 1,
    "precision": 32,
    "timeUsed_median": 1.5,
}
DENSE = {"batchsize": 8, "dim_input": 64, "dim_output": 10, "precision": 32, "timeUsed_median": 0.25}


def _row(sizes: dict, optimizer: str = "None", activation: str = "None", **changes: float) -> dict:
    flags = {f"opt_{name}": int(name == optimizer) for name in OPTIMIZERS}
    flags |= {f"act_{name}": int(name == activation) for name in ACTIVATIONS}
    return {**sizes, **flags, **changes}


def _write(folder: Path, name: str, *rows: dict) -> None:
    path = folder / "prediction_model" / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(path)


def test_a_forward_convolution(tmp_path):
    _write(tmp_path, "Data_convolution_1080ti.parquet", _row(CONVOLUTION, activation="tanh"))
    (record,) = import_justus(tmp_path).records
    record.validate()
    assert record.network == "layer:conv2d,channels_in=3,channels_out=4,kernel=3,stride=2,padding=same,bias,tanh"
    assert (record.batch_size, record.image_size, record.time_ms, record.family) == (2, 7, 1.5, "conv2d")
    assert (record.device, record.precision, record.mode) == ("gtx-1080-ti", "fp32", "inference")
    assert (record.framework, record.memory_format, record.label) == ("tensorflow", "channels_last", "forward")
    assert record.source_file == "prediction_model/data/Data_convolution_1080ti.parquet" and record.source_line == 1
    # 7 pixels by SAME and stride 2 are 4; of each value 3 * 3 * 3 products and a bias, then tanh.
    dataset = build_dataset([record], tmp_path / "cache")
    table = node_table(dataset, dataset.samples[0])
    assert 2 * 4 * 16 * (2 * 27 + 1) in table.flops.tolist()


def test_a_training_step_of_a_dense_layer(tmp_path):
    _write(tmp_path, "Data_dense_V100.parquet", _row(DENSE), _row(DENSE, "Adagrad", "relu"))
    forward, step = import_justus(tmp_path).records
    assert forward.network == "layer:linear,features_in=64,features_out=10"
    assert step.network == "layer:linear,features_in=64,features_out=10,relu,trained_data"
    assert (step.mode, step.optimizer, step.source_line) == ("training", "adagrad", 2)
    assert step.label == "forward, loss, backward, adagrad update of weights and data"
    assert (step.device, step.image_size, step.memory_format) == ("v100-pcie-16gb", 0, "channels_first")
    dataset = build_dataset([step], tmp_path / "cache")
    (sample,) = dataset.samples
    phases = dataset.graphs[sample.graph].phase
    # The update reads weights, gradients and sums of squares, and writes weights and sums: of layer, input and target.
    update = node_table(dataset, sample).bytes[(phases == 3).numpy()].sum()
    assert update == 5 * 4 * (64 * 10 + 8 * 64 + 8 * 10)


@pytest.mark.parametrize(("optimizer", "name"), [(name, "" if name == "None" else name.lower()) for name in OPTIMIZERS])
def test_optimizers_have_names(tmp_path, optimizer, name):
    _write(tmp_path, "Data_dense_k80.parquet", _row(DENSE, optimizer))
    (record,) = import_justus(tmp_path).records
    record.validate()
    assert record.optimizer == name and record.device in device_ids()


def test_valid_padding_and_no_bias(tmp_path):
    _write(tmp_path, "Data_convolution_K40.parquet", _row(CONVOLUTION, padding=0, use_bias=0))
    (record,) = import_justus(tmp_path).records
    assert record.network == "layer:conv2d,channels_in=3,channels_out=4,kernel=3,stride=2,padding=valid"


def test_what_is_left_out_is_counted(tmp_path):
    rows = [_row(DENSE), _row(DENSE, timeUsed_median=float("nan")), _row(DENSE, precision=16)]
    _write(tmp_path, "Data_dense_P100.parquet", *rows)
    _write(tmp_path, "Data_dense_Voodoo2.parquet", _row(DENSE), _row(DENSE))
    imported = import_justus(tmp_path)
    assert len(imported.records) == 1
    assert imported.skipped == {
        "no measurement": 1,
        "precision other than 32 bits": 1,
        "file name not understood or device not known": 2,
    }


def test_a_sample_is_the_same_each_time_and_by_file(tmp_path):
    rows = [_row(DENSE, batchsize=number) for number in range(1, 41)]
    _write(tmp_path, "Data_dense_P100.parquet", *rows)
    first = import_justus(tmp_path, limit_per_file=5)
    assert len(first.records) == 5 and first.skipped == {"not drawn for the sample": 35}
    assert all(r.source_line == r.batch_size for r in first.records)
    assert sorted(r.source_line for r in first.records) == [r.source_line for r in first.records]
    _write(tmp_path, "Data_dense_K40.parquet", *rows)
    again = import_justus(tmp_path, limit_per_file=5).records
    assert [r for r in again if r.device == "p100-pcie-16gb"] == first.records
    assert import_justus(tmp_path, limit_per_file=5, seed=1).records != again
    assert len(import_justus(tmp_path, limit_per_file=50).records) == 80


def test_damaged_files_and_wrong_folders_are_named(tmp_path):
    with pytest.raises(ValueError, match="give the folder of a clone"):
        import_justus(tmp_path)
    with pytest.raises(ValueError, match="limit_per_file must be at least 1, not 0"):
        import_justus(tmp_path, limit_per_file=0)
    name = "Data_convolution_K40.parquet"
    for row, message in (
        ({"batchsize": 1}, "lacks channels_in"),
        (CONVOLUTION, "lacks some of opt_None, opt_SGD"),
        (_row(CONVOLUTION, opt_SGD=1), "a row has not exactly one of opt_None"),
        (_row(CONVOLUTION, padding=2), "padding and use_bias must be 0 or 1"),
    ):
        _write(tmp_path, name, row)
        with pytest.raises(ValueError, match=rf"{name}: .*{message}"):
            import_justus(tmp_path)
    (tmp_path / "prediction_model" / "data" / name).write_text("none")
    with pytest.raises(ValueError, match=rf"{name}: not a Parquet file"):
        import_justus(tmp_path)


@pytest.fixture(scope="module")
def clone(real_clone) -> Path:
    return real_clone("GNNPERF_JUSTUS_RESULTS", "CDECatapult/ml-performance-prediction")


def test_the_real_files_are_read_whole(clone):
    imported = import_justus(clone)
    assert len(imported.records) == 225_000 and not imported.skipped
    assert {r.device for r in imported.records} == {
        "gtx-1080-ti",
        "k40",
        "k80",
        "p100-pcie-16gb",
        "v100-pcie-16gb",
    }
    for record in imported.records:
        record.validate()


def test_the_columns_of_the_real_files_mean_what_the_importer_takes_them_for(clone):
    for path in sorted((clone / "prediction_model" / "data").glob("Data_convolution_*.parquet")):
        rows = pd.read_parquet(path)
        kernel = rows.kernelsize.where(rows.padding == 0, 1)
        side = (rows.matsize - kernel + 1) / rows.strides
        taps = rows.kernelsize**2 * rows.channels_in
        assert (rows.memory_in == rows.batchsize * rows.channels_in * rows.matsize**2).all()
        assert (rows.memory_weights == rows.channels_out * (taps + rows.use_bias)).all()
        assert (rows.memory_out / (rows.batchsize * rows.channels_out * side**2) - 1).abs().max() < 1e-9
        assert (rows.ops / (rows.memory_out * taps) - 1).abs().max() < 1e-9
    for path in sorted((clone / "prediction_model" / "data").glob("Data_dense_*.parquet")):
        rows = pd.read_parquet(path)
        assert (rows.memory_weights == rows.dim_input * rows.dim_output).all()
        assert (rows.memory_in == rows.batchsize * rows.dim_input).all()
        assert (rows.memory_out == rows.batchsize * rows.dim_output).all()


def test_real_layers_are_built_with_the_weights_that_the_files_count(clone):
    path = "prediction_model/data/Data_convolution_P100.parquet"
    weights = pd.read_parquet(clone / path).memory_weights
    drawn = [r for r in import_justus(clone, limit_per_file=40).records if r.source_file == path]
    for record in drawn:
        model = networks.build(record.network, record.batch_size, record.image_size)
        assert sum(p.numel() for p in model.module.parameters()) == weights[record.source_line - 1]


def test_real_layers_have_graphs(clone, tmp_path):
    drawn = import_justus(clone, limit_per_file=6).records
    dataset = build_dataset([*drawn, replace(drawn[0], batch_size=drawn[0].batch_size + 1)], tmp_path)
    assert len(dataset.samples) == 55 and not dataset.skipped
