"""Rows of the table of pools: what each is and costs, and how loaded it is."""

from __future__ import annotations

from dataclasses import replace

from qmodel.evaluation.api_pools import ApiCase, api_overload
from qmodel.evaluation.measured_pools import MeasuredCase, measured_binding, measured_overload
from qmodel.evaluation.path_predictions import PoolCase, Solution
from qmodel.types import PoolRow, settings_text

__all__ = ["api_pool_row", "measured_pool_row", "pool_row"]


def pool_row(case: PoolCase, prediction: Solution | None, binding: str) -> PoolRow:
    """A pool whose load is predicted; None: no request comes to it."""
    stable = prediction is None or prediction.overload is None
    overload = prediction.overload.reason if prediction is not None and prediction.overload is not None else ""
    known = prediction is not None and stable
    return replace(
        _bare_row(case),
        utilisation=None if prediction is None else prediction.utilisation,
        kv_fill=prediction.kv_fill if prediction is not None and known else None,
        mean_batch=prediction.mean_batch if prediction is not None and known else None,
        binding=binding if stable else "overload",
        stable=stable,
        overload=overload,
    )


def measured_pool_row(case: MeasuredCase, utilisation: float) -> PoolRow:
    """A pool of measured capacity."""
    overload = measured_overload(case, utilisation)
    return replace(
        _bare_row(case),
        utilisation=utilisation,
        binding=measured_binding(case, utilisation) if overload is None else "overload",
        stable=overload is None,
        overload="" if overload is None else overload.reason,
    )


def api_pool_row(case: ApiCase, utilisation: float, usd_per_hour: float) -> PoolRow:
    """An API, at what its requests cost."""
    overload = api_overload(case, utilisation)
    return replace(
        _bare_row(case),
        cost_usd_per_hour=usd_per_hour,
        utilisation=None if case.api.max_rate_rps is None else utilisation,
        binding=case.binding(utilisation) if overload is None else "overload",
        stable=overload is None,
        overload="" if overload is None else overload.reason,
    )


def _bare_row(case: PoolCase | MeasuredCase) -> PoolRow:
    """What a pool is, without its load."""
    item, price = case.pool, case.price.usd_per_gpu_hour
    known = case.settings if isinstance(case, PoolCase) else None
    return PoolRow(
        pool=item.name,
        model=item.model,
        role=item.role,
        gpu=item.gpu,
        tp=item.layout.tp,
        pp=item.layout.pp,
        ep=item.layout.ep,
        dp=item.layout.dp,
        cp=item.layout.cp,
        replicas=item.replicas,
        gpus=item.gpus,
        price_tier=case.price.tier,
        usd_per_gpu_hour=price,
        cost_usd_per_hour=price * item.gpus,
        utilisation=None,
        kv_fill=None,
        mean_batch=None,
        binding="",
        stable=True,
        max_num_seqs=None if known is None else known.max_num_seqs,
        max_batched_tokens=None if known is None else known.max_batched_tokens,
        kv_dtype=None if known is None else known.kv_dtype,
        precision=item.precision or "auto",
        settings=settings_text(item.engine),
    )
