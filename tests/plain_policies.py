"""A pool walked step by step and sequence by sequence, with every policy: the oracle of the event-jumping simulator.

Nothing is counted ahead: a step looks at every sequence, memory is the sum over the sequences that run, blocks are
rounded for each of them, and every replica is brought to every event of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from qmodel.simulation import Availability, EnginePolicy, RequestTable
from qmodel.types import Replica

__all__ = ["PlainPool", "Walked", "plain_pool"]

NAN = float("nan")


@dataclass(slots=True, kw_only=True, eq=False)
class Walked:
    row: int
    arrival_s: float
    prompt: int
    output: int
    reasoning: int
    priority: int
    cached: int
    base: int
    generated: int
    ready: str = "no"
    todo: int = 0  # prompt tokens still to compute
    kv: float = 0.0  # tokens written while it decodes, or taken while it prefills
    tokens: float = 0.0  # generated, with fractions of a speculative pace
    decodes: bool = False
    saved: int = 0
    expires_s: float = math.inf
    admitted_s: float = NAN
    first_s: float = NAN
    answer_s: float = NAN
    done_s: float = NAN
    outcome: str = "unfinished"
    replica: int = -1
    preemptions: int = 0
    recomputed: int = 0
    swapped: int = 0
    retries: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class PlainReplica:
    replica: Replica
    policy: EnginePolicy
    index: int
    now_s: float = 0.0
    ends_s: float | None = None
    waiting: list[Walked] = field(default_factory=list)
    running: list[Walked] = field(default_factory=list)
    decodes: list[Walked] = field(default_factory=list)
    gone: list[Walked] = field(default_factory=list)
    history: list[tuple[float, float, int, float, float]] = field(
        default_factory=list
    )  # from, to, running, pool, exact
    extra_s: float = 0.0  # what swapping adds to the step

    @property
    def rule(self) -> str:
        return self.policy.admission or self.replica.admission

    @property
    def pace(self) -> float:
        return 1 if self.policy.speculation is None else self.policy.speculation.tokens_per_step

    @property
    def drafts(self) -> int:
        return 0 if self.policy.speculation is None else self.policy.speculation.draft_tokens

    def pool_of(self, context: float, block: int | None = None) -> float:
        size = self.policy.block_tokens if block is None else block
        blocks = context if size == 1 else math.ceil(context / size) * size
        return self.replica.kv_slope * blocks + self.replica.kv_fixed_tokens

    def taken(self, block: int | None = None) -> float:
        return sum(
            self.pool_of(item.prompt + item.output if self.rule == "no_evict" else item.kv, block)
            for item in self.running
        )

    def load(self) -> float:
        return self.taken() + sum(self.pool_of(self.needed(item)) for item in self.waiting)

    def needed(self, item: Walked) -> float:
        if self.rule == "no_evict":
            return item.prompt + item.output
        if item.ready != "no":
            return item.prompt + item.generated - 1 + self.pace
        return item.prompt + item.generated

    def run_until(self, time_s: float) -> None:
        while True:
            if self.ends_s is None:
                if self.now_s >= time_s or not (self.running or self.waiting):
                    break
                self.expire(self.now_s)
                if self.running or self.waiting:
                    self.begin()
            elif self.ends_s <= time_s:
                self.finish()
            else:
                break
        self.expire(time_s)

    def expire(self, time_s: float) -> None:
        for item in sorted((item for item in self.waiting if item.expires_s <= time_s), key=lambda item: item.row):
            self.waiting.remove(item)
            item.done_s, item.outcome = item.expires_s, "reneged"
            self.gone.append(item)

    def accept(self, item: Walked, time_s: float) -> None:
        if not self.running and not self.waiting:
            self.now_s = max(self.now_s, time_s)
        item.replica = self.index
        item.outcome = "unfinished"
        if self.policy.patience_s is not None and math.isnan(item.admitted_s):
            item.expires_s = time_s + self.policy.patience_s
        self.waiting.append(item)
        self.sort()

    def sort(self) -> None:
        if self.policy.order == "priority":
            self.waiting.sort(key=lambda item: (-item.priority, item.row))

    def evict(self) -> Walked:
        victim = self.running[-1]
        if self.policy.order == "priority":
            victim = max(self.running, key=lambda item: (-item.priority, item.row))
        self.running.remove(victim)
        if victim.decodes:
            victim.generated = min(math.floor(victim.tokens + 1e-9), victim.output - 1)
            lost = victim.prompt + victim.generated - 1
            if self.policy.preemption == "swap":
                victim.ready = "host"
                victim.swapped += lost
                self.extra_s += lost * self.policy.swap_out_s_per_token
            else:
                victim.recomputed += lost - victim.cached
        else:
            victim.recomputed += victim.prompt + victim.generated - victim.todo - victim.cached
        victim.decodes = False
        victim.preemptions += 1
        self.waiting.insert(0, victim)
        self.sort()
        return victim

    def begin(self) -> None:
        replica, rule, law = self.replica, self.rule, self.replica.step
        limit = math.inf if replica.kv_tokens is None else replica.kv_tokens
        self.extra_s = 0.0
        evicted = False
        while True:
            decodes = [item for item in self.running if item.decodes]
            for item in decodes:
                item.kv += self.pace
            if not decodes or self.taken() <= limit or rule == "no_evict":
                break
            for item in decodes:
                item.kv -= self.pace
            self.evict()
            evicted = True
        budget = replica.max_batched_tokens - len(decodes) * (1 + self.drafts)
        prefill = 0
        for item in [item for item in self.running if not item.decodes]:
            chunk = min(item.todo, budget)
            if rule == "first_chunk" and item in self.running and chunk:
                item.kv += chunk
                while item in self.running and self.taken() > limit:
                    self.evict()
                    evicted = True
            if item in self.running:
                item.todo -= chunk
                budget -= chunk
                prefill += chunk
        while self.waiting and not evicted and budget > 0 and len(self.running) < replica.max_num_seqs:
            item = self.waiting[0]
            todo = 0 if item.ready != "no" else item.prompt + item.generated - item.cached
            chunk = min(todo, budget)
            takes = self.needed(item) - (todo - chunk if rule == "first_chunk" else 0)
            if self.running and self.taken() + self.pool_of(takes) > (1 - replica.watermark) * limit:
                break
            self.waiting.pop(0)
            self.running.append(item)
            item.expires_s = math.inf
            if math.isnan(item.admitted_s):
                item.admitted_s = self.now_s
            item.kv, item.todo = takes, todo - chunk
            if rule == "no_evict":
                item.kv = item.prompt + item.generated - (1 - self.pace if item.ready != "no" else 0)
            budget -= chunk
            prefill += chunk
            if item.ready != "no":
                budget -= 1 + self.drafts
                if item.ready == "host":
                    self.extra_s += (item.prompt + item.generated - 1) * self.policy.swap_in_s_per_token
                item.ready, item.decodes, item.tokens = "no", True, float(item.generated)
        self.decodes = [item for item in self.running if item.decodes]
        b = len(self.decodes)
        draft_cost = 0.0 if self.policy.speculation is None else self.policy.speculation.draft_cost
        lasts_s = float(law.tau_s(float(b), 0.0)) * (1 + self.drafts * draft_cost)
        lasts_s += law.gamma_s * sum(item.kv for item in self.decodes)
        lasts_s += law.delta_s * (prefill + self.drafts * b) + self.extra_s
        self.ends_s = self.now_s + lasts_s
        self.history.append((self.now_s, self.ends_s, len(self.running), self.taken(), self.taken(1)))

    def finish(self) -> None:
        assert self.ends_s is not None
        self.now_s, self.ends_s = self.ends_s, None
        for item in list(self.running):
            if item in self.decodes:
                item.tokens = item.tokens + self.pace
            elif item.todo == 0:
                item.generated += 1
                item.tokens = float(item.generated)
                item.decodes = True
                item.kv = item.prompt + item.generated - 1
            else:
                continue
            had = math.floor(item.tokens + 1e-9)
            if had >= 1 and item.base == 0 and math.isnan(item.first_s):
                item.first_s = self.now_s
            if had > item.reasoning >= item.base and math.isnan(item.answer_s):
                item.answer_s = self.now_s
            if had >= item.output:
                item.done_s, item.outcome = self.now_s, "done"
                self.running.remove(item)
                self.gone.append(item)

    def lose_everything(self, time_s: float) -> list[Walked]:
        for item in self.running:
            if item.decodes:
                generated = min(math.floor(item.tokens + 1e-9), item.output - 1)
                item.recomputed += item.prompt + generated - 1 - item.cached
            else:
                item.recomputed += item.prompt + item.generated - item.todo - item.cached
            item.generated = max(item.saved, item.base)
            item.decodes = False
        for item in self.waiting:
            if item.ready == "host":
                item.recomputed += item.prompt + item.generated - 1 - item.cached
                item.ready, item.generated = "no", max(item.saved, item.base)
            item.expires_s = math.inf
        lost = [*self.running, *self.waiting]
        self.running, self.waiting, self.decodes = [], [], []
        self.ends_s, self.now_s = None, time_s
        return lost

    def save(self) -> None:
        for item in self.running:
            item.saved = min(math.floor(item.tokens + 1e-9), item.output - 1) if item.decodes else item.generated
        for item in self.waiting:
            item.saved = item.generated


@dataclass(slots=True, kw_only=True, eq=False)
class PlainPool:
    sequences: list[Walked]
    replicas: list[PlainReplica]


def plain_pool(
    table: RequestTable,
    replica: Replica,
    *,
    replicas: int = 1,
    router: str = "random",
    policy: EnginePolicy | None = None,
    availability: Availability | None = None,
    rng: np.random.Generator | None = None,
) -> PlainPool:
    """Serve a table to the end; every event brings every replica to its time."""
    policy, availability = policy or EnginePolicy(), availability or Availability()
    rng = rng or np.random.default_rng(0)
    everyone = [
        Walked(
            row=row,
            arrival_s=float(table.arrival_s[row]),
            prompt=int(table.prompt[row]),
            output=int(table.output[row]),
            reasoning=int(table.reasoning[row]),
            priority=int(table.priority[row]),
            cached=int(table.cached_prefix[row]),
            base=int(table.generated[row]),
            generated=int(table.generated[row]),
            ready="pool" if table.generated[row] else "no",
        )
        for row in range(len(table))
    ]
    size = availability.most(replicas)
    engines = [PlainReplica(replica=replica, policy=policy, index=index) for index in range(size)]
    wanted = replicas
    ready_s = [0.0 if index < replicas else math.inf for index in range(size)]  # serves from then on
    away: dict[int, str] = {}
    since = [0.0] * size
    homeless: list[Walked] = []
    turn = 0

    def route(item: Walked, time_s: float) -> None:
        nonlocal turn
        open_ = [e for e in engines if e.index < wanted and ready_s[e.index] <= time_s and e.index not in away]
        if not open_:
            homeless.append(item)
            return
        if router in ("jsq", "least_kv"):
            loads = [len(e.running) + len(e.waiting) if router == "jsq" else e.load() for e in open_]
            open_ = [e for e, load in zip(open_, loads, strict=True) if load <= min(loads) * (1 + 1e-12)]
        if router == "round_robin":
            chosen = open_[turn % len(open_)]
            turn += 1
        else:
            chosen = open_[int(rng.integers(len(open_)))] if len(open_) > 1 else open_[0]
        chosen.accept(item, time_s)

    def serve_from(index: int, time_s: float) -> None:
        since[index] = time_s
        every_s = availability.checkpoint_s
        ends_s = max([outage.up_s for outage in availability.outages], default=0.0)
        if every_s is not None:
            for number in range(int(max(ends_s - time_s, 0.0) / every_s) + 1):
                events.append((time_s + number * every_s, "save", (index, time_s)))

    def rehome(time_s: float) -> None:
        for item in list(homeless):
            homeless.remove(item)
            route(item, time_s)

    events: list[tuple[float, str, object]] = [(item.arrival_s, "arrive", item) for item in everyone]
    events += [(time_s, "count", count) for time_s, count in availability.counts]
    for outage in availability.outages:
        events.append((max(outage.down_s - availability.notice_s, 0.0), "notice", outage))
        events.append((outage.down_s, "down", outage))
        events.append((outage.up_s, "up", outage))
    for index in range(replicas):
        serve_from(index, 0.0)
    while events or any(e.running or e.waiting for e in engines):
        impatient = min((item.expires_s for e in engines for item in e.waiting), default=math.inf)
        time_s = min([impatient, *(event[0] for event in events)])
        if time_s == math.inf:
            for e in engines:
                e.run_until(math.inf)
            break
        for e in engines:
            e.run_until(time_s)
            for item in e.gone:
                if item.outcome == "reneged" and item.retries < policy.retries:
                    back_s = item.done_s + policy.backoff_s * 2**item.retries
                    item.retries += 1
                    item.done_s = NAN
                    events.append((back_s, "arrive", item))
            e.gone.clear()
        due = min(events, key=lambda event: event[0], default=None)
        if due is None or due[0] > time_s:
            continue
        events.remove(due)
        _, kind, subject = due
        if isinstance(subject, Walked):
            longest = subject.prompt + subject.output + (math.ceil(engines[0].pace) if engines[0].drafts else 0)
            if replica.kv_tokens is not None and engines[0].pool_of(longest) > replica.kv_tokens:
                subject.outcome = "refused"
            else:
                route(subject, time_s)
        elif kind == "count":
            assert isinstance(subject, int)
            for index in range(wanted, subject):
                if not engines[index].running and not engines[index].waiting:
                    ready_s[index] = time_s + availability.startup_s
                    serve_from(index, ready_s[index])
                    events.append((ready_s[index], "ready", None))
            wanted = subject
            rehome(time_s)
        elif kind == "ready":
            rehome(time_s)
        elif kind == "save":
            index, epoch_s = subject  # type: ignore[misc]
            if since[index] == epoch_s and away.get(index) != "down":
                engines[index].save()
        else:
            outage = subject  # type: ignore[assignment]
            engine = engines[outage.replica]
            moved: Sequence[Walked] = []
            if kind == "notice":
                away[outage.replica] = kind
                moved, engine.waiting = engine.waiting, []
                for item in moved:
                    item.expires_s = math.inf
            elif kind == "down":
                away[outage.replica] = kind
                moved = engine.lose_everything(time_s)
            else:
                del away[outage.replica]
                serve_from(outage.replica, time_s)
                rehome(time_s)
            for item in moved:
                route(item, time_s)
    return PlainPool(sequences=everyone, replicas=engines)
