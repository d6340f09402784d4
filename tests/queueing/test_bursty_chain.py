"""The chain of number and phase against a direct solution of its balance equations and against known limits."""

from __future__ import annotations

import numpy as np
import pytest

from qmodel.queueing import Moments
from qmodel.queueing.arrivals.peakedness import burst_peakedness
from qmodel.queueing.bursts.phase_chain import JointLaw, joint_law
from qmodel.queueing.bursts.phases import Phases
from qmodel.types import FloatArray
from qmodel.types.arrivals import Burst


def two_phases(high: float, low: float, share: float, decay_per_s: float) -> Phases:
    """Factors of a mean rate of 1, with one component."""
    switching = decay_per_s * np.array([[share - 1.0, 1.0 - share], [share, -share]])
    factor = np.array([[high, low]])
    return Phases(
        factor=factor,
        prompt_factor=factor,
        share=np.array([[share, 1.0 - share]]),
        switching=switching[None],
        levels=(2,),
        decay_per_s=np.array([decay_per_s]),
        by_class=np.array([[[share * high, (1.0 - share) * low]]]),
        noise=np.ones(1),
        clump=np.zeros(1),
    )


def solved(rate_rps: float, phases: Phases, speed: FloatArray, number: FloatArray | None = None) -> JointLaw:
    """The law with single states, or on the nodes ``number``."""
    states = np.arange(speed.size, dtype=float) if number is None else number
    gaps = np.diff(states) / 2.0
    weight = np.zeros_like(states)
    weight[1:] += gaps
    weight[:-1] += gaps
    weight[[0, -1]] += 0.5
    m = phases.factor.shape[1]
    return joint_law(
        np.array([rate_rps]),
        phases,
        number=states[None],
        weight=weight[None],
        speed=np.broadcast_to(speed, (1, m, speed.size)).copy(),
        noise=np.broadcast_to(phases.noise[:, None], (1, m)),
        top=speed[-1:],
    )


def direct(rate_rps: float, phases: Phases, speed: FloatArray, most: int) -> FloatArray:
    """Balance equations of the chain cut at ``most`` requests, solved as they stand; shape (most + 1, m)."""
    m = phases.factor.shape[1]
    served = np.concatenate([speed, np.full(most + 1 - speed.size, speed[-1])])
    generator = np.zeros(((most + 1) * m, (most + 1) * m))
    for n in range(most + 1):
        for j in range(m):
            row = n * m + j
            for k in range(m):
                if k != j:
                    generator[row, n * m + k] += phases.switching[0, j, k]
            if n < most:
                generator[row, row + m] += rate_rps * phases.factor[0, j]
            if n > 0:
                generator[row, row - m] += served[n]
    generator -= np.diag(generator.sum(axis=1))
    generator[:, -1] = 1.0
    right = np.zeros(generator.shape[0])
    right[-1] = 1.0
    return np.linalg.solve(generator.T, right).reshape(most + 1, m)


def test_law_and_tail_solve_the_balance_equations() -> None:
    phases = two_phases(2.0, 0.5, 1.0 / 3.0, 0.2)
    speed = np.minimum(np.arange(9.0), 8.0) * 0.5
    found, exact = solved(3.0, phases, speed), direct(3.0, phases, speed, 600)
    inside = exact / phases.share[0]
    assert found.seen[0, :, :8] == pytest.approx(inside[:8].T, rel=1e-8)
    beyond = np.arange(8, 601) - 8.0
    assert found.tail[0] == pytest.approx(inside[9:].sum(axis=0), rel=1e-6)
    assert found.tail_excess[0] == pytest.approx(beyond @ inside[8:], rel=1e-6)
    assert found.tail_square[0] == pytest.approx(((beyond + 1) * (beyond + 2)) @ inside[8:], rel=1e-5)


def test_four_phases_solve_the_balance_equations() -> None:
    slow, fast = two_phases(1.8, 0.8, 0.2, 0.02), two_phases(1.5, 0.5, 0.5, 2.0)
    factor = (slow.factor[0][:, None] + fast.factor[0][None, :] - 1.0).reshape(1, 4)
    share = (slow.share[0][:, None] * fast.share[0][None, :]).reshape(1, 4)
    switching = np.kron(slow.switching[0], np.eye(2)) + np.kron(np.eye(2), fast.switching[0])
    phases = Phases(
        factor=factor,
        prompt_factor=factor,
        share=share,
        switching=switching[None],
        levels=(2, 2),
        decay_per_s=np.array([0.02, 2.0]),
        by_class=(share * factor)[None],
        noise=np.ones(1),
        clump=np.zeros(1),
    )
    speed = np.minimum(np.arange(13.0), 12.0) * 0.25
    exact = direct(1.6, phases, speed, 260) / share[0]
    assert solved(1.6, phases, speed).seen[0, :, :12] == pytest.approx(exact[:12].T, rel=1e-6)


@pytest.mark.parametrize("decay_per_s", [0.01, 0.3, 20.0])
def test_with_unlimited_servers_the_spread_is_the_peakedness(decay_per_s: float) -> None:
    rate, mu = 8.0, 0.5
    phases = two_phases(2.0, 0.5, 1.0 / 3.0, decay_per_s)
    variance = float(phases.share[0] @ (phases.factor[0] - 1.0) ** 2) * rate**2
    burst = Burst(excess=(2.0 * variance / (rate * decay_per_s),), decay_per_s=(decay_per_s,))
    number = np.arange(150.0)
    law = phases.share[0] @ solved(rate, phases, number * mu).seen[0]
    mean = law @ number
    z = float(burst_peakedness(burst, Moments(mean_s=1.0 / mu, scv=1.0)))
    assert mean == pytest.approx(rate / mu, rel=1e-6)
    assert law @ (number - mean) ** 2 / mean == pytest.approx(z, rel=1e-6)


def test_scatter_scales_states_as_hayward_does() -> None:
    one = Phases(
        factor=np.ones((1, 1)),
        prompt_factor=np.ones((1, 1)),
        share=np.ones((1, 1)),
        switching=np.zeros((1, 1, 1)),
        levels=(),
        decay_per_s=np.zeros(0),
        by_class=np.ones((1, 1, 1)),
        noise=np.array([3.0]),
        clump=np.zeros(1),
    )
    number = np.arange(400.0)
    law = solved(40.0, one, number * 0.5).seen[0, 0]
    mean = law @ number
    assert law @ (number - mean) ** 2 / mean == pytest.approx(3.0, rel=0.03)


def test_a_phase_above_capacity_builds_a_fluid_backlog() -> None:
    """On and off for long: what waits when the peak ends is the excess rate times how long it lasted."""
    phases = two_phases(4.0, 0.0 + 1e-9, 0.25, 1e-4)
    speed = np.minimum(np.arange(51.0), 50.0)  # 50 servers of rate 1; 30 arrive on average, 120 in a peak
    found = solved(30.0, phases, speed)
    on_s, off_s = 1.0 / (1e-4 * 0.75), 1.0 / (1e-4 * 0.25)
    fluid = fluid_backlog(up=70.0, down=50.0, on_s=on_s, off_s=off_s)
    assert float((phases.share * found.tail_excess).sum()) == pytest.approx(fluid, rel=0.02)


def fluid_backlog(up: float, down: float, on_s: float, off_s: float) -> float:
    """Mean level of a fluid queue that rises at ``up`` while on and falls at ``down`` while off (exponential times).

    The level has an exponential tail of rate 1/(up on) - 1/(down off), seen whenever it is not empty. Reference:
    Anick, Mitra and Sondhi, Bell System Technical Journal 61, 1982, with one source.
    """
    rate = 1.0 / (up * on_s) - 1.0 / (down * off_s)
    on, off = on_s / (on_s + off_s), off_s / (on_s + off_s)
    return (on + off * (on * up) / (off * down)) / rate


def test_a_coarse_grid_agrees_with_single_states() -> None:
    phases = two_phases(1.6, 0.7, 1.0 / 3.0, 0.05)
    states = np.arange(1601.0)
    speed = states / (8.0 + states / 400.0)
    exact = solved(100.0, phases, speed).seen[0]
    nodes = np.unique(np.maximum(np.linspace(0.0, 1.0, 120) ** 2 * 1600.0, np.minimum(np.arange(120.0), 1600.0)))
    nodes[-1] = 1600.0
    coarse = solved(100.0, phases, nodes / (8.0 + nodes / 400.0), nodes).seen[0]
    for power in (1, 2):
        assert coarse @ nodes**power == pytest.approx(exact @ states**power, rel=0.01)
