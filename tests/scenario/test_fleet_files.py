"""Fleet files."""

from __future__ import annotations

import copy

import pytest

from qmodel.errors import ScenarioError
from qmodel.scenario import check_fleet, read_fleet

TEXT = """\
qmodel: 1
pools:
  a: {model: m, gpu: h100-sxm, layout: {tp: 4, pp: 2}, replicas: 3, engine: {max_num_seqs: 64},
      price: {usd_per_gpu_hour: 2.5}}
  b: {model: m, gpu: h200-sxm, replicas: 1, role: unified}
routing:
  chat: [{path: [a], share: 0.7}, {path: [b], share: 0.3}]
  code: [{path: [b]}]
"""


def told(text: str) -> list[str]:
    return [str(problem).removeprefix("<text>:") for problem in check_fleet(text).problems]


def test_a_fleet_file_is_read(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(TEXT)
    fleet = read_fleet(path)
    assert fleet.pools["a"].layout.layout.gpus == 8 and fleet.pools["b"].layout.layout.gpus == 1
    assert fleet.pools["a"].engine is not None and fleet.pools["a"].engine.settings() == {"max_num_seqs": 64}
    assert [(path.path, path.share) for path in fleet.routing["chat"]] == [(("a",), 0.7), (("b",), 0.3)]
    assert str(fleet.problem("pools.b.model", "no model 'm'")) == f"{path}:5:7: pools.b.model: no model 'm'"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("share: 0.3", "share: 0.2", ["7:3: routing.chat: shares must add up to 1 (got 0.9)"]),
        ("[{path: [b]}]", "[{path: [c]}]", ["8:18: routing.code[0].path[0]: no pool 'c'; there are a, b"]),
        ("replicas: 3", "replicas: 0", ["3:56: pools.a.replicas: must be at least 1 (got 0)"]),
        ("replicas: 3, ", "", ["3:3: pools.a: 'replicas' is missing"]),
        ("role: unified", "role: decoder",
         ["5:45: pools.b.role: must be unified, prefill, decode or answer (got 'decoder'); did you mean 'decode'?"]),
        ("role: unified", "role: decode",
         ["7:36: routing.chat[1].path: pools do not follow each other: b (decode);"
          " a path is one unified pool, or prefill, decode, or prefill, decode, answer",
          "8:11: routing.code[0].path: pools do not follow each other: b (decode);"
          " a path is one unified pool, or prefill, decode, or prefill, decode, answer"]),
        ("[{path: [b]}]", "[{path: [a, b]}]",
         ["8:11: routing.code[0].path: pools do not follow each other: a (unified), b (unified);"
          " a path is one unified pool, or prefill, decode, or prefill, decode, answer"]),
        ("role: unified", "role: unified, link: {lanes: 2}",
         ["5:60: pools.b.link: a unified pool gets no KV from another pool;"
          " state the link of the decode or answer pool"]),
        ("tp: 4", "tq: 4", ["3:41: pools.a.layout: unknown key 'tq'; known keys: tp, pp, ep, dp, cp"]),
        ("qmodel: 1\n", "", ["1:1: 'qmodel' is missing; add 'qmodel: 1' at the top"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_position(old, new, expected):
    assert told(TEXT.replace(old, new)) == expected


def test_a_pool_without_traffic_is_told():
    text = TEXT.replace("[{path: [a], share: 0.7}, {path: [b], share: 0.3}]", "[{path: [b]}]")
    assert told(text) == ["3:3: pools.a: serves no class; give it a path in routing, or take it out"]


def test_reading_raises_all_problems_at_once():
    tree = {"qmodel": 1, "pools": {"a": {"model": 3, "gpu": "g", "replicas": "2"}}, "routing": {"chat": []}}
    before = copy.deepcopy(tree)
    with pytest.raises(ScenarioError) as caught:
        read_fleet(tree)
    assert len(caught.value.problems) == 3 and tree == before


def test_a_missing_fleet_file_is_told(tmp_path):
    assert str(check_fleet(tmp_path / "no.yaml").problems[0]) == f"{tmp_path / 'no.yaml'}: no such file"


ROW = """\
qmodel: 1
pools:
  p: {model: m, gpu: h100-sxm, replicas: 2, role: prefill}
  d: {model: m, gpu: h100-sxm, replicas: 3, role: decode, link: {bandwidth_gbps: 25, latency_s: 1e-4, lanes: 2}}
  a: {model: m, gpu: h100-sxm, replicas: 1, role: answer}
routing:
  chat: [{path: [p, d]}]
  maths: [{path: [p, d, a]}]
"""


def test_pools_in_a_row_are_read():
    fleet = read_fleet(ROW)
    assert [fleet.pools[name].role for name in fleet.routing["maths"][0].path] == ["prefill", "decode", "answer"]
    link = fleet.pools["d"].link
    assert link is not None and (link.bandwidth_gbps, link.latency_s, link.lanes) == (25.0, 1e-4, 2)


@pytest.mark.parametrize("path", ["[d, p]", "[p]", "[p, a]", "[d]", "[p, p, d]", "[p, d, a, a]"])
def test_stages_follow_each_other_in_one_order(path):
    found = told(ROW.replace("[p, d]}", f"{path}}}"))
    assert any("routing.chat[0].path: pools do not follow each other" in text for text in found)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("bandwidth_gbps: 25", "bandwidth_gbps: 0", "pools.d.link.bandwidth_gbps: must be greater than 0 (got 0)"),
        ("latency_s: 1e-4", "latency_s: -1", "pools.d.link.latency_s: must be at least 0 (got -1)"),
        ("lanes: 2", "lanes: 0", "pools.d.link.lanes: must be at least 1 (got 0)"),
        ("lanes: 2", "lane: 2", "pools.d.link: unknown key 'lane'; did you mean 'lanes'?"),
    ],
)
def test_a_link_is_checked(old, new, expected):
    assert any(expected in text for text in told(ROW.replace(old, new)))
