"""FLOPs and bytes of every op.

``registry`` holds the rules by name; ``rules``, ``backward_rules`` and ``recurrent_rules`` are the rules; ``roofline``
gives the time.
"""

from gnnperf.cost import backward_rules as _backward_rules  # registers the rules
from gnnperf.cost import recurrent_rules as _recurrent_rules
from gnnperf.cost import rules as _rules
from gnnperf.cost.registry import Cost, has_rule, node_cost, register, unknown_ops

__all__ = ["Cost", "has_rule", "node_cost", "register", "unknown_ops"]
del _backward_rules, _recurrent_rules, _rules
