"""The rules of operations on lists."""

from __future__ import annotations

from tests.support.rules import infer


def test_together_each_result_is_laid_out_as_its_first_tensor():
    assert infer("_foreach_mul_", "S(0) R S(0) R", [2, 1, 2, 1], "together", "T-T") == "S(0) - I"
    assert infer("_foreach_sqrt", "S(0)/R R/S(1)", [2, 2], "together", "TT") == "S(0)/I I/S(1)"


def test_one_by_one_the_results_are_dispatched_themselves():
    assert infer("_foreach_add", "P(sum) R", [2, 1], "each", "--") == "- -"


def test_norms_are_invariant_scalars():
    assert infer("_foreach_norm", "S(0) R", [2, 1], "together", "T-T", 2.0) == "I - I"
