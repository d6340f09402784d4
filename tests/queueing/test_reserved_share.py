from __future__ import annotations

import numpy as np
import pytest

from qmodel.queueing import Moments, mgc, reserved
from tests.queueing.priority_cells import class_cells

SERVICE = Moments(mean_s=1.0, scv=2.0)


def test_without_shared_servers_each_class_is_a_queue_of_its_own() -> None:
    split = reserved([3.0, 2.0], [SERVICE, SERVICE], own=[4, 3], shared=0)
    for index, (rate, servers) in enumerate([(3.0, 4), (2.0, 3)]):
        alone = mgc(rate, SERVICE, servers)
        assert split.mean_wait_s[index] == pytest.approx(float(alone.mean_wait_s), rel=1e-9)
        assert split.p_wait[index] == pytest.approx(float(alone.p_wait), rel=1e-9)
        assert split.wait_quantile_s(0.95)[index] == pytest.approx(float(alone.wait_quantile_s(0.95)), rel=1e-9)


@pytest.mark.parametrize(("own", "shared"), [(0, 8), (3, 5), (8, 0)])
def test_a_single_class_does_not_care_whose_servers_they_are(own: int, shared: int) -> None:
    alone = mgc(6.0, SERVICE, 8)
    found = reserved([6.0], [SERVICE], own=[own], shared=shared)
    assert found.mean_wait_s[0] == pytest.approx(float(alone.mean_wait_s), rel=1e-6)
    assert found.p_wait[0] == pytest.approx(float(alone.p_wait), rel=1e-6)


def test_without_reserved_servers_all_classes_wait_like_in_one_queue() -> None:
    found = reserved([3.0, 3.2], [SERVICE, SERVICE], own=[0, 0], shared=8)
    plain = float(mgc(6.2, SERVICE, 8).mean_wait_s)
    assert found.mean_wait_s.tolist() == pytest.approx([plain, plain], rel=0.12)  # overflows are not independent


def test_reserving_helps_the_class_and_hurts_the_other() -> None:
    shared = reserved([3.0, 3.2], [SERVICE, SERVICE], own=[0, 0], shared=8)
    held = reserved([3.0, 3.2], [SERVICE, SERVICE], own=[3, 0], shared=5)
    assert held.mean_wait_s[0] < shared.mean_wait_s[0]
    assert held.mean_wait_s[1] > shared.mean_wait_s[1]


def test_a_class_within_its_own_servers_is_safe_from_the_overload_of_another() -> None:
    found = reserved([3.0, 6.0], [SERVICE, SERVICE], own=[4, 2], shared=2)
    assert found.stable.tolist() == [True, False]
    assert found.mean_wait_s[0] == pytest.approx(float(mgc(3.0, SERVICE, 4).mean_wait_s), rel=1e-9)
    assert np.isinf(found.mean_wait_s[1]) and np.isinf(found.wait_quantile_s(0.5)[1])
    assert found.overload is not None
    assert found.overload.reason.startswith("class 2 of 2 sends 6 servers' work to 2 of its own")
    assert found.overload.reason.endswith("at least 5 are needed")


@pytest.mark.parametrize(
    ("rates", "own", "shared", "message"),
    [
        ([1.0], [1, 1], 1, "one entry per class"),
        ([0.0, 1.0], [1, 1], 1, "rates_rps must be finite and above 0"),
        ([1.0, 1.0], [1, -1], 1, "whole numbers of at least 0"),
        ([1.0, 1.0], [1, 1.5], 1, "whole numbers of at least 0"),
        ([1.0, 1.0], [1, 0], 0, "own must be at least 1"),
        ([1.0, 1.0], [1, 1], 10**7, "at most 2,000 servers"),
    ],
)
def test_bad_arguments_are_named(rates, own, shared, message) -> None:
    with pytest.raises(ValueError, match=message):
        reserved(rates, [SERVICE] * len(rates), own, shared)


def test_arrays_of_cases_are_refused() -> None:
    with pytest.raises(ValueError, match="one case each"):
        reserved([1.0], [Moments(mean_s=[1.0, 2.0], scv=1.0)], [2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["development", "set_aside"])
def test_simulated_classes_lie_within_the_band(which: str) -> None:
    cells = class_cells("reserved")
    cells = cells[cells["set"] == which]
    assert len(cells) >= 20
    assert (cells["error"].abs() <= cells["band"] + cells["ci95_s"] / cells["mean_wait_s"]).mean() >= 0.9
    assert cells["error"].abs().mean() <= 0.18
    assert cells["p_wait_error"].abs().mean() <= 0.10
