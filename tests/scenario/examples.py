"""A scenario that uses most keys, as data and as YAML."""

from __future__ import annotations

import copy
from typing import Any

FULL_YAML = """\
qmodel: 1
title: Chat and reasoning on one fleet
classes:
  chat:
    model: llama-3.3-70b
    rate_rps: 12
    prompt_tokens: {mean: 1200, cv: 1.1}
    output_tokens: {mean: 300, cv: 0.9}
    slo: {ttft_p95_s: 0.5, tpot_p95_s: 0.04}
    priority: 0
  reasoning:
    model: deepseek-r1
    arrivals: {rate_rps: 0.8}
    prompt_tokens: {quantiles: {p50: 300, p90: 900}}
    reasoning_tokens:
      mixture: [{weight: 0.58, mu: 7.57, sigma: 0.83}, {weight: 0.42, mean: 11000, cv: 0.5}]
      budget: 32768
      at_cap: atom
    answer_tokens: {normal: {mean: 500, sd: 300, min: 16, max: 2000}}
    max_tokens: 40000
    slo: {answer_start_p90_s: 400, tpot_mean_s: 0.05, completion_p99.9_s: 600}
  logs:
    model: llama-3.3-70b
    trace: {file: data/azure.csv.gz, class: conv, rate_scale: 0.5}
    slo: {ttft_mean_s: 1}
fleet:
  gpus:
    h200-sxm: {node: dgx-h200, fabric: ib-ndr, topology: rail-fat-tree, max_count: 64, billing: per_gpu,
               price: {term: on_demand, usd_per_gpu_hour: 3.8}, engine: {max_num_seqs: 512}}
    h100-sxm:
  price_book: {providers: [aws, lambda], term: spot, market: any, choose: min}
engine: {name: vllm, version: "0.11", max_num_seqs: 256, max_batched_tokens: 8192, gpu_memory_utilization: 0.9,
         watermark: 0.03, admission: full_prompt, kv_dtype: auto, block_tokens: 16, router: jsq}
layouts: {tp: [1, 2, 4, 8], pp: [1, 2], ep: auto, dp: auto, cp: [1], precision: [auto, fp8], disaggregate: auto}
profiles:
  - {model: m, gpu: g, layout: {tp: 4}, alpha_s: 0.0131, beta_s: 7.1e-5, gamma_s: 3.06e-8, delta_s: 7.1e-5,
     max_num_seqs: 256, kv_tokens: 519500, kv_slope: 0.5, band_p90: 0.08}
  - {model: m, gpu: g2, step_table: {batch: [0, 8, 64], step_s: [0.01, 0.012, 0.02]}, gamma_s: 0, delta_s: 1.0e-4}
policy: {confidence: nominal, slo_scope: pool, spare_replicas: 0}
objective: {minimize: cost_usd_per_hour}
variants:
  peak: {classes.chat.rate_rps: 40}
  small: {fleet: {gpus: {h200-sxm: ~}}, classes.logs: ~}
comparisons: {weekday: [base, peak]}
"""

SMALL: dict[str, Any] = {
    "qmodel": 1,
    "classes": {
        "chat": {
            "model": "llama-3.1-8b",
            "rate_rps": 4,
            "prompt_tokens": {"mean": 1200, "cv": 1.1},
            "output_tokens": {"mean": 300, "cv": 0.9},
            "slo": {"ttft_p95_s": 0.5},
        }
    },
    "fleet": {"gpus": {"h100-sxm": {}}},
}


def small(**changes: Any) -> dict[str, Any]:
    """The small scenario with dotted keys (double underscores) set; None removes."""
    tree = copy.deepcopy(SMALL)
    for key, value in changes.items():
        *above, name = key.split("__")
        holder = tree
        for segment in above:
            holder = holder.setdefault(segment, {})
        if value is None:
            holder.pop(name, None)
        else:
            holder[name] = value
    return tree
