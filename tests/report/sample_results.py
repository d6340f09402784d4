"""Small hand-made results that the tests of report, comparison and cli print."""

from __future__ import annotations

from dataclasses import replace

from qmodel.evaluation.results import CapacityResult, CurveRow, Evaluation, LatencyRow
from qmodel.planning.plans import Alternative, Plan, PriceRow, Why
from qmodel.types import Fleet, Layout, Path, Pool, PoolRow, PurchaseRow, RouteRow, SloRow

__all__ = ["a_capacity", "a_plan", "an_evaluation", "an_overloaded_evaluation", "no_plan"]

FLEET = Fleet(
    pools={
        "p1": Pool(
            name="p1",
            model="llama-3.3-70b",
            gpu="h100-sxm",
            layout=Layout(tp=4),
            replicas=3,
            usd_per_gpu_hour=2.5,
        )
    },
    routing={"chat": (Path(pools=("p1",), share=1.0),)},
)

POOL = PoolRow(
    pool="p1",
    model="llama-3.3-70b",
    role="unified",
    gpu="h100-sxm",
    tp=4,
    pp=1,
    ep=1,
    dp=1,
    cp=1,
    replicas=3,
    gpus=12,
    price_tier="on_demand",
    usd_per_gpu_hour=2.5,
    cost_usd_per_hour=30.0,
    utilisation=0.7123,
    kv_fill=0.41,
    mean_batch=18.26,
    binding="slo chat ttft_p95",
    stable=True,
)

TTFT = SloRow(
    cls="chat",
    path="p1",
    metric="ttft",
    stat="p95",
    target_s=0.5,
    predicted_s=0.412,
    low_s=0.36,
    high_s=0.53,
    met=True,
    met_at_p90=False,
)

TPOT = replace(
    TTFT, metric="tpot", stat="mean", target_s=0.04, predicted_s=0.0317, low_s=0.029, high_s=0.0349, met_at_p90=True
)

LATENCY = LatencyRow(cls="chat", path="p1", metric="ttft", mean_s=0.2, p50_s=0.15, p90_s=0.37, p95_s=0.412, p99_s=1.2)


def a_plan(**changes: object) -> Plan:
    """An optimal plan of one pool."""
    plan = Plan(
        title="Chat on H100",
        status="optimal",
        termination="gap",
        cost_usd_per_hour=30.0,
        bound_usd_per_hour=29.9,
        gap=0.0033,
        gap_columns=0.0,
        fleet=FLEET,
        pools=(POOL,),
        routing=(RouteRow(cls="chat", path="p1", share=1.0, rate_rps=12.0),),
        slo=(TTFT, TPOT),
        latency=(LATENCY,),
        purchases=(
            PurchaseRow(
                gpu="h100-sxm",
                provider="",
                region="",
                term="on_demand",
                gpus=12,
                usd_per_gpu_hour=2.5,
                cost_usd_per_hour=30.0,
            ),
        ),
        prices=(
            PriceRow(limit="coverage of chat", usd_per_hour_per_unit=28.4),
            PriceRow(limit="stock h100-sxm", usd_per_hour_per_unit=0.0),
        ),
        why=Why(
            text="3 replicas are the fewest that keep ttft_p95_s of chat within 0.5 s.",
            alternatives=(
                Alternative(cls="chat", candidate="h200-sxm tp2", cost_usd_per_hour=31.2, limit="dearer"),
                Alternative(
                    cls="chat", candidate="h100-sxm tp1", cost_usd_per_hour=None, limit="memory: weights need 131.4 GiB"
                ),
            ),
        ),
        assumptions=("Arrivals of chat are Poisson.",),
        scenario={"qmodel": 1, "title": "Chat on H100", "classes": {"chat": {"rate_rps": 12}}},
        inputs={},
        versions={"qmodel": "0.1.0"},
        run={"solve_s": 0.25},
    )
    return replace(plan, **changes)  # type: ignore[arg-type]  # callers name fields of Plan


def no_plan(**changes: object) -> Plan:
    """The answer to a target that no fleet can meet."""
    why = Why(
        text="class 'chat' cannot meet ttft_p95_s <= 0.05 on any allowed layout.",
        limit="classes.chat.slo.ttft_p95_s",
        best="h100-sxm tp8: 0.071 s at zero load (prefill alone takes 0.063 s)",
        change="raise classes.chat.slo.ttft_p95_s to >= 0.071, or allow gpus: b200-sxm",
    )
    nothing: dict[str, object] = dict.fromkeys(
        ("cost_usd_per_hour", "bound_usd_per_hour", "gap", "gap_columns", "fleet")
    )
    nothing |= dict.fromkeys(("pools", "routing", "slo", "latency", "purchases", "prices"), ())
    return a_plan(**{**nothing, "status": "infeasible", "termination": "proven", "why": why, **changes})


def an_evaluation(**changes: object) -> Evaluation:
    """The same fleet, evaluated."""
    plan = a_plan()
    evaluation = Evaluation(
        fleet=FLEET,
        pools=plan.pools,
        routing=plan.routing,
        slo=plan.slo,
        latency=plan.latency,
        stable=True,
        feasible=True,
        cost_usd_per_hour=30.0,
        assumptions=plan.assumptions,
    )
    return replace(evaluation, **changes)  # type: ignore[arg-type]  # callers name fields of Evaluation


def an_overloaded_evaluation() -> Evaluation:
    """The same fleet with one replica, which is too few."""
    pool = replace(
        POOL,
        replicas=1,
        gpus=4,
        cost_usd_per_hour=10.0,
        utilisation=2.137,
        kv_fill=None,
        mean_batch=None,
        binding="step time",
        stable=False,
        overload="12 requests/s offered, 5.61 can be carried",
    )
    unstable: dict[str, object] = dict.fromkeys(("predicted_s", "low_s", "high_s")) | {
        "met": False,
        "met_at_p90": False,
    }
    slo = (replace(TTFT, **unstable), replace(TPOT, **unstable))  # type: ignore[arg-type]
    nothing = dict.fromkeys(("mean_s", "p50_s", "p90_s", "p95_s", "p99_s"))
    return an_evaluation(
        pools=(pool,),
        slo=slo,
        latency=(replace(LATENCY, **nothing),),  # type: ignore[arg-type]  # names of fields
        stable=False,
        feasible=False,
        cost_usd_per_hour=10.0,
    )


def a_capacity() -> CapacityResult:
    """A fleet that carries a fifth more than it is asked to."""
    row = CurveRow(
        factor=1.0,
        rate_rps=12.0,
        utilisation=0.7123,
        goodput_rps=12.0,
        worst_slo="chat ttft_p95_s",
        worst_ratio=0.824,
        met=True,
    )
    return CapacityResult(
        factor=1.2,
        rate_rps=14.4,
        binding="chat ttft_p95_s in p1",
        curve=(
            row,
            replace(row, factor=1.2, rate_rps=14.4, utilisation=0.855, goodput_rps=14.4, worst_ratio=1.0),
            replace(row, factor=1.45, rate_rps=17.4, utilisation=None, goodput_rps=None, worst_ratio=None, met=False),
        ),
        assumptions=("Arrivals of chat are Poisson.",),
    )
