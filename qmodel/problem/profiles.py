"""Replicas from the step times that a user measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmodel.types import Band, Engine, Replica, StepLaw

if TYPE_CHECKING:
    from qmodel.scenario.fleet_section import ProfileSpec

__all__ = ["profiled_replica"]


def profiled_replica(spec: ProfileSpec, engine: Engine) -> Replica:
    """The replica whose step times a profile states; what it leaves out comes from the engine settings.

    Args:
        spec: a profile of step times.
        engine: settings on its GPU type.
    """
    band = Band(p90=spec.band_p90) if spec.band_p90 else Band()
    assert spec.gamma_s is not None and spec.delta_s is not None  # the schema asks for all that is missing here
    if spec.step_table is not None:
        step = StepLaw.table(
            batch=spec.step_table.batch,
            step_s=spec.step_table.step_s,
            gamma_s=spec.gamma_s,
            delta_s=spec.delta_s,
            band=band,
        )
    else:
        assert spec.alpha_s is not None and spec.beta_s is not None
        step = StepLaw.linear(
            alpha_s=spec.alpha_s, beta_s=spec.beta_s, gamma_s=spec.gamma_s, delta_s=spec.delta_s, band=band
        )
    return Replica(
        step=step,
        max_num_seqs=spec.max_num_seqs or engine.max_num_seqs,
        kv_tokens=spec.kv_tokens,
        max_batched_tokens=engine.max_batched_tokens,
        watermark=engine.watermark,
        admission=engine.admission,
        recompute_factor=engine.recompute_factor,
        kv_slope=spec.kv_slope,
        kv_fixed_tokens=spec.kv_fixed_tokens,
    )
