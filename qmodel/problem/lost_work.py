"""Work that is done twice because the replica that did it was taken away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qmodel.types import Layout, Lengths, Refusal, Replica, SpotTerms

__all__ = ["at_spot", "repeat_factor"]

MOST_REPEATED = 2.0  # times the work: beyond this a replica mostly does again what was lost
_MOST_EXPONENT = 50.0  # of the exponential, which is beyond every use by then


def repeat_factor(service_s: np.ndarray, weights: np.ndarray, losses_per_s: float) -> float:
    """Work done over work needed where every request begins anew when its replica is lost.

    A request of service time S under losses at rate nu takes (e^(nu S) - 1) / nu on average, without the time away:
    the law of the request stays its own (preemptive repeat, identical).

    Args:
        service_s: of requests, shape (n,).
        weights: their shares, shape (n,), together 1.
        losses_per_s: rate nu.

    Example:
        >>> round(repeat_factor(np.array([100.0]), np.array([1.0]), 1e-3), 4)  # 1 + nu S / 2 and more
        1.0517

    Reference: Gaver, A waiting line with interrupted service, including priorities, J. Roy. Statist. Soc. B 24, 1962.
    """
    exponents = np.minimum(losses_per_s * service_s, _MOST_EXPONENT)
    return float(weights @ (np.expm1(exponents) / losses_per_s) / (weights @ service_s)) if losses_per_s > 0 else 1.0


def at_spot(replica: Replica, terms: SpotTerms, lengths: Lengths, layout: Layout) -> Replica | Refusal:
    """The replica with steps as much longer as work is done twice; a refusal where that is most of it.

    A request is taken to last as long as it does in a full batch, so that the work lost is not understated.

    Args:
        replica: at its own step times.
        terms: how often it is lost.
        lengths: of the requests of its model.
        layout: of the replica.
    """
    full = float(replica.max_num_seqs)
    if replica.kv_tokens is not None:
        full = max(min(full, replica.kv_tokens / lengths.mean_context), 1.0)
    token_s = float(replica.step.tau_s(full, lengths.mean_context))
    service_s = lengths.output.values * token_s + lengths.prompt.mean * replica.step.delta_s
    factor = repeat_factor(service_s, lengths.output.weights, terms.losses_per_s(layout.gpus))
    if factor > MOST_REPEATED:
        what = f"spot replicas are lost so often that {1.0 - 1.0 / factor:.0%} of their work would be done again"
        return Refusal(layout=layout, kind="engine", reason=what, change="GPUs that are not taken away")
    return replace(replica, step=replica.step.scaled(factor))
