"""Copies that stand where a single device has a view: marked, never stale, never written."""

from __future__ import annotations

import pytest

from hyper_dtensor import Spec, wrap
from hyper_dtensor.copied import mark_copied, refuse_write
from hyper_layout import Layout, LayoutError
from tests.dtensor.helpers import S0, S1, P, R, equal, line, make, on_ranks, values


@on_ranks(2)
def test_a_copy_is_marked_and_passes_the_mark_on() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [S0])
    copy = mark_copied(wrap(x._local * 1.0, Spec.of(Layout(mesh, (S0,), 2))), x)
    assert copy._spec is Spec.of(copy.layout, 0, True)
    assert copy._spec is not x._spec
    assert "copied" in repr(copy._spec)
    for t in (copy.redistribute([S1]), copy.data, copy.redistribute([S1]).redistribute([R])):
        assert t._spec.copied
    equal(copy, values(4, 8))
    (copy.full_tensor() ** 2).sum().backward()
    assert x.grad is not None
    assert not x.grad._spec.copied
    equal(x.grad, 2 * values(4, 8))


@on_ranks(2)
def test_a_copy_whose_source_was_written_is_refused() -> None:
    mesh = line()
    x = make(values(4, 8), mesh, [P], requires_grad=False)
    copy = mark_copied(wrap(x._local * 1.0, x._spec, x.shape), x)
    moved = copy.redistribute([R])
    equal(moved, values(4, 8))
    x._local.add_(1.0)
    for t in (copy, moved):
        for use in (t.to_local, t.full_tensor, lambda t=t: t.redistribute([S1])):
            with pytest.raises(
                LayoutError, match=r"taken from another as a copy.*Take it again after the write"
            ):
                use()


@on_ranks(2)
def test_a_write_into_a_copy_is_refused_with_its_cures() -> None:
    x = make(values(4, 8), line(), [S0])
    with pytest.raises(LayoutError, match=r"add_ writes in place .*tp:S\(0\).*x\[i\] = value.*\.clone\(\)"):
        refuse_write(x, "add_")
