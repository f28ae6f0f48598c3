import pandas as pd

from experiments.tables import show


def test_a_table_is_shown_with_the_decimals_asked_for(capsys):
    table = pd.DataFrame({"seconds": [0.126], "rows": [3]})
    show("times", table)
    show("times", table, decimals=2)
    one, two = capsys.readouterr().out.split("times")[1:]
    assert "0.1 " in one and "0.13 " in two and "3" in two
