import numpy as np
import pandas as pd
import pytest

from gnnperf.metrics import absolute_percentage_errors, score

MEASURED = np.array([10.0, 20.0, 40.0, 100.0])
PREDICTED = np.array([11.0, 10.0, 40.0, 150.0])  # 10, 50, 0 and 50 % off


def test_errors_are_percent_of_the_measured_time():
    assert absolute_percentage_errors(MEASURED, PREDICTED) == pytest.approx([10, 50, 0, 50])


def test_scores_by_hand():
    scores = score(MEASURED, PREDICTED, pd.Series(["a", "a", "a", "b"]))
    assert scores.rows == 4
    assert scores.mape_percent == pytest.approx(27.5)
    assert scores.median_percent == pytest.approx(30)
    assert scores.acc10_percent == pytest.approx(50)  # exactly 10 % counts
    assert scores.group_mape_percent == pytest.approx((20 + 50) / 2)


def test_groups_follow_rows_and_not_an_index():
    groups = pd.Series(["a", "a", "a", "b"], index=[9, 7, 5, 3])
    assert score(MEASURED, PREDICTED, groups).group_mape_percent == pytest.approx(35)


def test_without_groups_every_row_counts_alike():
    assert score(MEASURED, PREDICTED).group_mape_percent == pytest.approx(27.5)


def test_nothing_to_score_and_no_number_are_errors():
    with pytest.raises(ValueError, match="no rows"):
        score(np.array([]), np.array([]))
    with pytest.raises(ValueError, match="not a finite number"):
        score(MEASURED, np.array([1.0, np.nan, 1.0, 1.0]))
