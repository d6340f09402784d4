"""Cases on networks, load, latency and disaggregation."""

from __future__ import annotations

from dataclasses import replace

from sizing_checks import (
    CATALOG,
    Checks,
    case,
    check,
    differs,
    model,
    near,
    plan_of,
    problems,
    scenario,
    serving,
    uncovered,
    vllm,
)

import qmodel as qm
from qmodel.perf import decode_step_s, prefill_s
from qmodel.queueing import Moments, Replica, StepLaw, ggc, pool, resident_cap
from qmodel.topology import link_costs
from qmodel.types import Engine, Law, Layout, Lengths, Stream
from qmodel.workload import lognormal_law

EARLY = "AWQ kernels and engine of early 2025; the constants describe current releases"


@case("CD033")
def _() -> Checks:
    node = CATALOG.node("pcie-2xl40s")
    rates = [
        serving(
            "qwen2.5-14b",
            "l40s",
            layout,
            vllm(max_num_seqs=256),
            users=16,
            prompt=1000,
            output=300,
            node=node.name,
            fabric="tcp-25",
        )[0]
        for layout in (Layout(tp=4), Layout(tp=2, pp=2))
    ]
    return [
        check(
            "TP within the node and PP across ranks above TP across",
            rates[1] > rates[0],
            f"{rates[0]:.0f}, {rates[1]:.0f}",
        )
    ]


def _two_nodes(name: str, layout: Layout, users: float, fabric: str) -> tuple[float, float]:
    """One GPU in each of several A100 machines."""
    node = CATALOG.default_node("a100-80-sxm")
    lone = replace(node, gpus_per_node=1, domain=replace(node.domain, gpus=1), nics=1)
    links = link_costs(layout, lone, CATALOG.fabric(fabric), None)
    engine = vllm("0.10.1", max_num_seqs=256)
    batch = users
    step_s = float(decode_step_s(name, "a100-80-sxm", layout, engine, batch=batch, context_tokens=1536, links=links))
    return users / step_s, step_s


@case("CD035")
def _() -> Checks:
    inside, _ = serving(
        "qwen2.5-7b", "a100-80-sxm", Layout(tp=2), vllm(max_num_seqs=256), users=50, prompt=1024, output=1024
    )
    across, _ = _two_nodes("qwen2.5-7b", Layout(tp=2), 50, "tcp-10")
    _, tpot_in = serving(
        "qwen2.5-7b", "a100-80-sxm", Layout(tp=2), vllm(max_num_seqs=256), users=10, prompt=1024, output=1024
    )
    _, tpot_out = _two_nodes("qwen2.5-7b", Layout(tp=2), 10, "tcp-10")
    return [
        check(
            "at least 2.5 times slower across nodes", inside / across >= 2.5, f"{inside / across:.1f} on 10 Gbit/s TCP"
        ),
        check("TPOT 13 ms inside within 50 %", near(tpot_in, 0.013, 0.5), f"{1e3 * tpot_in:.1f} ms"),
        check(
            "TPOT 44 ms across within 50 %",
            near(tpot_out, 0.044, 0.5),
            f"{1e3 * tpot_out:.1f} ms; the network is not stated",
        ),
    ]


@case("CD036")
def _() -> Checks:
    inside, _ = serving(
        "gpt-oss-120b", "a100-80-sxm", Layout(tp=4), vllm(max_num_seqs=256), users=200, prompt=1024, output=1024
    )
    across, _ = _two_nodes("gpt-oss-120b", Layout(tp=4), 200, "tcp-10")
    node = CATALOG.default_node("a100-80-sxm")
    lone = replace(node, gpus_per_node=1, domain=replace(node.domain, gpus=1), nics=1)
    links = link_costs(Layout(tp=4), lone, CATALOG.fabric("tcp-10"), None)
    return [
        check("the network is named", links.bottleneck == "tcp", links.bottleneck),
        differs(
            "at most a tenth of one node",
            across <= inside / 10,
            f"1/{inside / across:.1f} on 10 Gbit/s TCP",
            "the network of the case is not stated",
        ),
    ]


@case("CD037")
def _() -> Checks:
    found = {}
    for layout in (Layout(tp=16), Layout(tp=8, pp=2)):
        for fabric in ("ib-ndr", "tcp-25"):
            found[str(layout), fabric] = serving(
                "deepseek-r1", "h100-sxm", layout, vllm(), users=16, prompt=2000, output=200, fabric=fabric
            )[0]
    loss = {name: found[name, "ib-ndr"] / found[name, "tcp-25"] for name in ("tp16", "tp8-pp2")}
    return [
        check(
            "TP 16 suffers more from a slow network",
            loss["tp16"] > loss["tp8-pp2"],
            {k: round(v, 1) for k, v in loss.items()},
        ),
        check("without RDMA TP8 x PP2 is preferred", found["tp8-pp2", "tcp-25"] > found["tp16", "tcp-25"]),
    ]


@case("CD038")
def _() -> Checks:
    rates = [
        1.0
        / serving(
            "deepseek-r1",
            "h100-sxm",
            Layout(tp=16),
            CATALOG.engine(name, CATALOG.gpu("h100-sxm")),
            users=1,
            prompt=1000,
            output=500,
            fabric="ib-ndr",
        )[1]
        for name in ("vllm", "sglang")
    ]
    return [
        differs(
            "15 to 50 tokens/s for one stream",
            all(15 <= rate <= 50 for rate in rates),
            [round(rate) for rate in rates],
            "engines of February 2025, before their kernels for latent attention",
        )
    ]


@case("CD039")
def _() -> Checks:
    one, _ = serving(
        "deepseek-v3", "h100-sxm", Layout(tp=8), vllm(), users=100, prompt=1024, output=256, precision="w4"
    )
    two, _ = serving(
        "deepseek-v3",
        "h100-sxm",
        Layout(tp=8, pp=2),
        vllm(),
        users=200,
        prompt=1024,
        output=256,
        precision="w4",
        fabric="tcp-100",
    )
    return [
        differs(
            "1.3 to 1.9 times the throughput",
            1.3 <= two / one <= 1.9,
            f"{two / one:.2f}",
            "measured 1.6; the gain of stages is within the band",
        )
    ]


@case("CD040")
def _() -> Checks:
    node = CATALOG.node("pcie-2xl40s")
    layouts = (Layout(tp=2), Layout(pp=2))
    seconds = [
        float(
            prefill_s(
                "qwen2.5-32b",
                "l40s",
                layout,
                vllm(),
                prompt_tokens=4000,
                precision="w4",
                links=link_costs(layout, node, None, None),
            )
        )
        for layout in layouts
    ]
    return [
        check("interconnect is an input", node.domain.kind.startswith("pcie"), node.domain.kind),
        check(
            "TP2 prefill may be below a layer split on PCIe",
            True,
            f"TP2 {seconds[0]:.2f} s, PP2 {seconds[1]:.2f} s a prompt",
        ),
    ]


@case("CD041")
def _() -> Checks:
    rates = [
        serving(
            "deepseek-v3",
            "h200-sxm",
            layout,
            Engine(name="sglang", constants="SGLang", gpu_memory_utilization=0.9),
            users=64,
            prompt=180,
            output=400,
        )[0]
        for layout in (Layout(tp=8), Layout(tp=8, ep=8))
    ]
    return [check("within 20 % of each other", near(rates[1], rates[0], 0.2), f"{rates[1] / rates[0] - 1:+.0%}")]


@case("CD042")
def _() -> Checks:
    plain, copies = (
        plan_of("deepseek-v3", "h200-sxm", Layout(dp=8, ep=8), vllm(redundant_experts=extra)) for extra in (0, 64)
    )
    return [
        check(
            "redundant experts cost memory",
            copies.weights_gib > plain.weights_gib,
            f"+{copies.weights_gib - plain.weights_gib:.1f} GiB a GPU",
        ),
        uncovered("an imbalance factor", "imbalance is inside the fitted constants (eta, e_mf)"),
    ]


@case("CD044")
def _() -> Checks:
    return [
        uncovered(
            "both compared at equal GPUs by the optimizer",
            "a plan has no separate prefill pools; evaluate a fleet file",
        )
    ]


@case("CD045")
def _() -> Checks:
    four, two = (
        float(prefill_s("llama-3.1-8b", "a100-80-sxm", Layout(tp=tp), vllm(), prompt_tokens=2000)) for tp in (4, 2)
    )
    return [
        check(
            "TTFT of 2 + 2 not below that of TP4 at low load",
            two >= four,
            f"{1e3 * two:.0f} against {1e3 * four:.0f} ms",
        )
    ]


@case("CD046")
def _() -> Checks:
    plan = qm.plan(scenario(chat={"slo": {"ttft_p95_s": 0.001}}))
    return [check("infeasible whatever the replicas", plan.status == "infeasible", plan.explain().splitlines()[0])]


@case("CD047")
def _() -> Checks:
    return [uncovered("least TP limits a split", "the model and the machine are not in the catalog")]


@case("CD048")
def _() -> Checks:
    replica = Replica(step=StepLaw.linear(alpha_s=0.02, beta_s=1e-4), max_num_seqs=8)
    lengths = Lengths.independent(Law.constant(100), Law.constant(200))
    found = pool(replica, [Stream(name="a", rate_rps=100.0, lengths=lengths)], 1)
    return [check("a typed result, no number", found.overload is not None, found.overload and found.overload.reason)]


@case("CD049")
def _() -> Checks:
    waits = [1 + 0.9 * scv / (2 * 0.1) for scv in (0.18, 1.0)]  # Kingman in units of service, as documented
    poisson = ggc(0.9, Moments(mean_s=1.0, scv=0.0), 1, arrival_scv=1.0)
    regular = ggc(0.9, Moments(mean_s=1.0, scv=0.0), 1, arrival_scv=0.18)
    return [
        check(
            "5.5 for Poisson arrivals",
            near(1 + float(poisson.mean_wait_s), 5.5, 0.01),
            f"{1 + float(poisson.mean_wait_s):.2f}",
        ),
        differs(
            "1.81 for regular ones",
            near(1 + float(regular.mean_wait_s), 1.81, 0.02),
            f"{1 + float(regular.mean_wait_s):.2f}",
            f"Kingman, the source of {waits[0]:.2f}, is an upper bound",
        ),
        check("burstiness is an input", True),
    ]


@case("CD050")
def _() -> Checks:
    engine = vllm(max_num_seqs=256)
    kimi = model("kimi-k2-thinking")
    rate, _ = serving(kimi, "h200-sxm", Layout(cp=8), engine, users=256, prompt=8000, output=4000)
    capacity = rate / 4000
    return [
        check("unstable at 100 requests/s", capacity < 100, f"{capacity:.2f} requests/s a replica (1.57 measured)"),
        check("more than 60 replicas", 100 / capacity > 60, f"{100 / capacity:.0f}"),
    ]


@case("CD051")
def _() -> Checks:
    small, large = (resident_cap(tokens, 1024, 1024) for tokens in (93872, 464848))
    engine = vllm(max_num_seqs=256)
    peaks = []
    for cap in (small, large):
        limited = replace(engine, max_num_seqs=int(cap))
        peaks.append(serving("qwen2.5-7b", "a100-80-sxm", Layout(), limited, users=256, prompt=1024, output=1024)[0])
    return [
        check("about 61 resident", near(float(small), 61, 0.25), float(small)),
        differs(
            "the large pool peaks 1.7 to 2.3 times higher",
            1.7 <= peaks[1] / peaks[0] <= 2.3,
            f"{peaks[1] / peaks[0]:.2f}",
            "step times of dense models on this GPU carry a band of 43 %",
        ),
    ]


@case("CD052")
def _() -> Checks:
    found = {
        users: serving(
            "deepseek-v3", "h100-sxm", Layout(tp=8), vllm(), users=users, prompt=1024, output=256, precision="w4"
        )
        for users in (4, 8, 15, 30, 60, 100)
    }
    within = max((users for users, (_, tpot) in found.items() if tpot <= 0.05), default=0)
    return [
        differs("8 to 30 sequences at 50 ms", 8 <= within <= 30, within, EARLY),
        differs(
            "twice the throughput at 200 ms",
            found[100][0] >= 2 * found[max(within, 4)][0],
            f"{found[100][0] / found[max(within, 4)][0]:.1f}",
            EARLY,
        ),
        differs("2 to 4 requests/s", 2 <= found[100][0] / 256 <= 4, f"{found[100][0] / 256:.2f} at 100 users", EARLY),
    ]


@case("CD053")
def _() -> Checks:
    return [uncovered("replicas by the hour, peak and mean", "not supported yet: plans by the hour")]


@case("CD054")
def _() -> Checks:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4, gamma_s=2e-8, delta_s=5e-5), kv_tokens=500_000.0)
    lengths = Lengths.independent(lognormal_law(1500.0, 0.5), lognormal_law(100.0, 0.5))
    calm = pool(replica, [Stream(name="a", rate_rps=6.0, lengths=lengths)], 1)
    bursty = (
        pool(replica, [Stream(name="a", rate_rps=6.0, lengths=lengths, arrival_scv=10.0)], 1)
        if "arrival_scv" in Stream.__slots__
        else None
    )
    if bursty is None:
        told = problems(scenario(chat={"rate_rps": None, "arrivals": {"rate_rps": 6, "scv": 10}}))
        return [
            check("burstiness is an input", told == "", told),
            check("TTFT p99 known", calm.classes["a"].ttft.quantile(0.99) > 0),
        ]
    return [check("TTFT p99 grows", bursty.classes["a"].ttft.quantile(0.99) > calm.classes["a"].ttft.quantile(0.99))]


@case("CD055")
def _() -> Checks:
    found = [
        serving(
            "qwen3-235b-a22b",
            "gb200",
            Layout(tp=4),
            vllm("0.33.0"),
            users=users,
            prompt=1024,
            output=1024,
            precision="fp4",
        )
        for users in (1, 4, 16, 32)
    ]
    speeds = [1 / tpot for _, tpot in found]
    totals = [rate for rate, _ in found]
    return [
        check(
            "speed per user falls, throughput rises",
            speeds == sorted(speeds, reverse=True) and totals == sorted(totals),
            [round(s) for s in speeds],
        ),
    ]


@case("CD056")
def _() -> Checks:
    replica = Replica(step=StepLaw.linear(alpha_s=0.01, beta_s=1e-4), kv_tokens=200_000.0)
    utilised = [
        pool(
            replica,
            [Stream(name="a", rate_rps=1.0, lengths=Lengths.independent(Law.constant(500), Law.constant(output)))],
            1,
        ).utilisation
        for output in (200, 2000)
    ]
    return [check("load is measured by tokens, not requests", float(utilised[1]) > 3 * float(utilised[0]), utilised)]
