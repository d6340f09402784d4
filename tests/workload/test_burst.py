"""The record of a burst: dispersion, splitting, joining and its plain form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qmodel.types import Burst

BURST = Burst(excess=(3.0, 0.5, -0.2), decay_per_s=(0.1, math.inf, 8.0), skew=(1.5, None, None))


def test_short_windows_look_poisson_but_for_batches_and_long_ones_add_all() -> None:
    assert float(BURST.dispersion(1e-9)) == pytest.approx(1.5, abs=1e-6)
    assert float(BURST.dispersion(1e9)) == pytest.approx(4.3, rel=1e-6)


def test_a_random_split_keeps_the_share_of_the_excess() -> None:
    part = BURST.thinned(0.25)
    assert part.excess == (0.75, 0.125, -0.05)
    assert (part.decay_per_s, part.skew) == (BURST.decay_per_s, BURST.skew)


def test_the_parts_of_a_split_join_to_less_than_the_whole() -> None:
    """Parts of a random split are not independent; independent streams of the same law are smoother together."""
    joined = Burst.superposed([(2.0, BURST.thinned(0.5)), (2.0, BURST.thinned(0.5))])
    assert joined is not None
    np.testing.assert_allclose(joined.dispersion([0.1, 10.0]) - 1.0, 0.5 * (BURST.dispersion([0.1, 10.0]) - 1.0))


def test_poisson_streams_dilute_a_burst_and_join_to_poisson() -> None:
    mixed = Burst.superposed([(1.0, BURST), (3.0, None)])
    assert mixed is not None
    assert mixed.excess == (0.75, 0.125, -0.05)
    assert Burst.superposed([(1.0, None), (3.0, None)]) is None


def test_the_plain_form_comes_back_the_same() -> None:
    assert Burst.from_dict(BURST.to_dict()) == BURST  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"excess": (1.0,), "decay_per_s": ()}, "decay_per_s must have one value per excess"),
        ({"excess": (math.nan,), "decay_per_s": (1.0,)}, "excess must be finite"),
        ({"excess": (1.0,), "decay_per_s": (0.0,)}, "decay_per_s must be greater than 0"),
        ({"excess": (1.0,), "decay_per_s": (math.nan,)}, "decay_per_s must be greater than 0"),
        ({"excess": (1.0,), "decay_per_s": (1.0,), "skew": (0.0, 1.0)}, "skew must be empty or have one value"),
    ],
)
def test_impossible_fields_are_refused(fields: dict[str, tuple[float, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Burst(**fields)
