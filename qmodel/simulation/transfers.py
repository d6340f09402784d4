"""Bytes of KV by where they went: to another pool, to host memory and back, or nowhere and computed again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from qmodel.evaluation import Evaluation
from qmodel.simulation.pool_runs import MeasuredRun
from qmodel.simulation.results import Tier, TransferRow
from qmodel.simulation.row_runs import RowRun
from qmodel.units import GIB

__all__ = ["transfer_rows"]


def transfer_rows(
    pools: Mapping[str, Sequence[MeasuredRun]],
    rows: Mapping[str, Sequence[RowRun]],
    predicted: Evaluation,
    token_bytes: Mapping[str, float | None],
) -> tuple[TransferRow, ...]:
    """One row per link, and one per pool for each other tier through which something went.

    Args:
        pools: simulated pools by name, one run per replication.
        rows: pools that paths join, likewise.
        predicted: says what the links were predicted to do.
        token_bytes: KV bytes of one token of context by pool, None where not known.
    """
    found = [row for runs in rows.values() for row in _over_links(runs, predicted)]
    for name, runs in pools.items():
        found += _beside(name, runs, token_bytes.get(name))
    return tuple(found)


def _over_links(runs: Sequence[RowRun], predicted: Evaluation) -> Iterator[TransferRow]:
    total_s = sum(run.end_s for run in runs)
    for known in predicted.links:
        tracks = [track for run in runs if (track := run.run.links.get(known.pool)) is not None]
        if not tracks:
            continue
        sequences = sum(track.sequences for track in tracks)
        gib = sum(track.bytes_moved for track in tracks) / GIB
        yield TransferRow(
            tier="gpu to gpu",
            pool=known.pool,
            sources=known.sources,
            sequences=sequences,
            tokens=sum(track.tokens for track in tracks),
            gib=gib,
            gib_per_s=gib / total_s,
            predicted_utilisation=known.utilisation,
            utilisation=sum(track.busy_share for track in tracks) / len(tracks),
            predicted_wait_mean_s=known.wait_mean_s,
            wait_mean_s=sum(track.mean_wait_s * track.sequences for track in tracks) / max(sequences, 1),
        )


def _beside(pool: str, runs: Sequence[MeasuredRun], token_bytes: float | None) -> Iterator[TransferRow]:
    window_s = sum(run.run.track.to_s - run.run.track.from_s for run in runs)
    total_s = sum(run.end_s for run in runs)
    counted: tuple[tuple[Tier, int, float], ...] = (
        ("gpu to host", sum(run.run.track.swapped_out_tokens for run in runs), window_s),
        ("host to gpu", sum(run.run.track.swapped_in_tokens for run in runs), window_s),
        ("recompute", sum(int(run.run.log.recomputed_tokens.sum()) for run in runs), total_s),
    )
    for tier, tokens, span_s in counted:
        if tokens:
            gib = None if token_bytes is None else tokens * token_bytes / GIB
            yield TransferRow(
                tier=tier,
                pool=pool,
                sources=pool,
                sequences=None,
                tokens=tokens,
                gib=gib,
                gib_per_s=None if gib is None else gib / span_s,
                predicted_utilisation=None,
                utilisation=None,
                predicted_wait_mean_s=None,
                wait_mean_s=None,
            )
