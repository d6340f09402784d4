"""A plain step-by-step simulator of serving replicas, the outside oracle of the queueing tests.

One step of one replica:

1. every decoding sequence writes one token of KV; when that does not fit, the newest sequences are evicted,
   and each prefills its prompt and what it had generated again, from the head of the queue;
2. the token budget that the decodes leave goes to prefill chunks, running sequences first, then new ones in order
   of arrival while there is a free slot and the whole prompt fits below the watermark (nobody is admitted in a step
   that evicted);
3. the step lasts base(decoding) + gamma * context tokens of the decodes + delta * prefill tokens;
4. at its end every decoding sequence has one more token, and every completed prefill has its next token.

Nothing is jumped over: identical decode steps are walked one by one, but the state of a step is a handful of counters,
because sequences are only touched when something happens to them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from qmodel.types import FloatArray, IntArray, Law, Replica, Router, Stream

__all__ = ["ClassSamples", "Request", "SimResult", "replay", "simulate"]


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request: what it asks for, and what happened to it."""

    cls: str
    arrival_s: float
    prompt: int
    output: int
    reasoning: int = 0
    counted: bool = True
    generated: int = 0  # tokens; while the request decodes, those it had when it began to
    prefill_left: int = 0
    joined_at: int = -1  # step number of the replica at which it began to decode, -1 while it does not
    preemptions: int = 0
    waited: bool = False  # passed over by at least one admission round
    admitted_s: float = float("nan")
    first_token_s: float = float("nan")
    answer_s: float = float("nan")
    done_s: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassSamples:
    """What the counted requests of one class saw, in order of arrival; ``tpot_s`` has those with N >= 2 only."""

    ttft_s: FloatArray
    answer_start_s: FloatArray
    tpot_s: FloatArray
    completion_s: FloatArray
    wait_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimResult:
    """One run after its warm-up.

    Attributes:
        classes: samples by class.
        mean_batch: sequences running in one replica, averaged over time.
        kv_fill: pool tokens held over the pool, averaged over time; None without a limit.
        preemptions: evictions per counted request.
        share_waiting: share of requests that were not admitted by the first step that began after their arrival.
        steps: engine steps of all replicas, warm-up included.
    """

    classes: Mapping[str, ClassSamples]
    mean_batch: float
    kv_fill: float | None
    preemptions: float
    share_waiting: float
    steps: int

    def all(self, metric: str) -> FloatArray:
        """The samples of ``ttft_s``, ``tpot_s``, ... over all classes."""
        return np.concatenate([getattr(samples, metric) for samples in self.classes.values()])


@dataclass(slots=True, kw_only=True, eq=False)
class _Engine:
    """One replica: its sequences, its counters and the step in flight."""

    replica: Replica
    base_s: list[float]  # step time with b decoding sequences, index b
    now_s: float = 0.0
    step: int = 0  # steps finished
    started_s: float = -1.0  # beginning of the latest step
    ends_s: float = -1.0  # end of the step in flight, -1 when there is none
    decoding: int = 0
    context: int = 0  # KV tokens of the decoding sequences
    held: float = 0.0  # pool tokens taken by all running sequences
    waiting: deque[Request] = field(default_factory=deque)
    running: dict[int, Request] = field(default_factory=dict)  # by id(), in order of admission
    prefilling: list[Request] = field(default_factory=list)  # running, prompt not yet complete
    due: dict[int, list[Request]] = field(default_factory=dict)  # step number -> sequences with an event at its end
    batch_area: float = 0.0
    held_area: float = 0.0

    @property
    def in_system(self) -> int:
        return len(self.running) + len(self.waiting)

    def run_until(self, time_s: float) -> None:
        """Finish every step that ends by ``time_s``; a step under way stays under way."""
        while True:
            if self.ends_s < 0.0:
                if not self.running and not self.waiting:
                    return
                self._begin_step()
            if self.ends_s > time_s:
                return
            self._finish_step()

    def accept(self, request: Request) -> None:
        """Put an arrival at the end of the queue; an idle replica begins at once."""
        if not self.running and not self.waiting:
            self.now_s = max(self.now_s, request.arrival_s)
        self.waiting.append(request)

    def pool_tokens(self, request: Request, context: int) -> float:
        """KV pool tokens that ``request`` takes at a context of so many tokens."""
        replica = self.replica
        if replica.admission == "no_evict":
            context = request.prompt + request.output
        return replica.kv_slope * context + replica.kv_fixed_tokens

    def _begin_step(self) -> None:
        replica = self.replica
        evicted = self._make_room()
        self.context += self.decoding
        if replica.admission == "full_prompt":
            self.held += replica.kv_slope * self.decoding
        prefill_tokens = 0
        if self.prefilling or self.waiting:
            budget = replica.max_batched_tokens - self.decoding
            for request in self.prefilling:
                chunk = min(request.prefill_left, budget - prefill_tokens)
                request.prefill_left -= chunk
                prefill_tokens += chunk
            while self.waiting and not evicted and prefill_tokens < budget and self._admits(self.waiting[0]):
                request = self._admit(self.waiting.popleft())
                chunk = min(request.prefill_left, budget - prefill_tokens)
                request.prefill_left -= chunk
                prefill_tokens += chunk
        self.started_s = self.now_s
        law = replica.step
        self.ends_s = (
            self.now_s + self.base_s[self.decoding] + law.gamma_s * self.context + law.delta_s * prefill_tokens
        )

    def _finish_step(self) -> None:
        lasted_s = self.ends_s - self.started_s
        self.batch_area += lasted_s * len(self.running)
        self.held_area += lasted_s * self.held
        self.now_s, self.ends_s = self.ends_s, -1.0
        self.step += 1
        for request in self.due.pop(self.step, ()):
            self._event(request)
        if self.prefilling:
            ready = [request for request in self.prefilling if request.prefill_left == 0]
            self.prefilling = [request for request in self.prefilling if request.prefill_left > 0]
            for request in ready:
                self._prefill_done(request)

    def _make_room(self) -> bool:
        """Evict the newest sequences until the tokens of this step's decodes fit; whether any was evicted."""
        replica = self.replica
        if replica.kv_tokens is None or replica.admission == "no_evict":
            return False
        evicted = False
        while self.held + replica.kv_slope * self.decoding > replica.kv_tokens:
            evicted = True
            _, request = self.running.popitem()
            if request.joined_at >= 0:
                for step in _event_steps(request):
                    if step in self.due:  # else it has happened
                        self.due[step].remove(request)
                request.generated += self.step - request.joined_at
                self.decoding -= 1
                self.context -= request.prompt + request.generated - 1
                self.held -= self.pool_tokens(request, request.prompt + request.generated - 1)
            else:
                self.prefilling.remove(request)
                self.held -= self.pool_tokens(request, request.prompt + request.generated)
            request.joined_at = -1
            request.preemptions += 1
            self.waiting.appendleft(request)
        return evicted

    def _admits(self, request: Request) -> bool:
        replica = self.replica
        if len(self.running) >= replica.max_num_seqs:
            return False
        if replica.kv_tokens is None or not self.running:  # alone it always fits: checked at the start
            return True
        needed = self.pool_tokens(request, request.prompt + request.generated)
        return self.held + needed <= (1.0 - replica.watermark) * replica.kv_tokens

    def _admit(self, request: Request) -> Request:
        if request.admitted_s != request.admitted_s:
            request.admitted_s = self.now_s
            request.waited = request.arrival_s < self.started_s
        request.prefill_left = request.prompt + request.generated
        self.running[id(request)] = request
        self.prefilling.append(request)
        self.held += self.pool_tokens(request, request.prompt + request.generated)
        return request

    def _prefill_done(self, request: Request) -> None:
        request.generated += 1
        if request.generated == 1:
            request.first_token_s = self.now_s
        if request.generated == request.reasoning + 1:
            request.answer_s = self.now_s
        if request.generated == request.output:
            self._leave(request)
            return
        self.decoding += 1
        self.context += request.prompt + request.generated - 1
        request.joined_at = self.step
        for step in _event_steps(request):
            self.due.setdefault(step, []).append(request)

    def _event(self, request: Request) -> None:
        generated = request.generated + self.step - request.joined_at
        if generated == request.reasoning + 1:
            request.answer_s = self.now_s
        if generated == request.output:
            self.decoding -= 1
            self.context -= request.prompt + request.output - 1
            self._leave(request)

    def _leave(self, request: Request) -> None:
        request.done_s = self.now_s
        request.joined_at = -1
        self.held -= self.pool_tokens(request, request.prompt + request.output - 1)
        del self.running[id(request)]


def _event_steps(request: Request) -> set[int]:
    """Steps whose ends bring the last token and, where it is still to come, the first answer token."""
    return {
        request.joined_at + token - request.generated
        for token in (request.output, request.reasoning + 1)
        if token > request.generated
    }


def replay(
    replica: Replica,
    arrivals: Iterator[Request],
    *,
    replicas: int = 1,
    router: Router = "random",
    rng: np.random.Generator | None = None,
    warm_s: float = 0.0,
    enough: int | None = None,
) -> SimResult:
    """Serve requests until the first ``enough`` counted ones are done (all of them by default).

    Args:
        replica: what each of the ``replicas`` is.
        arrivals: requests in order of arrival; may be endless when ``enough`` is given.
        replicas: how many.
        router: ``random`` sends each request to any replica, ``jsq`` to one with the fewest requests.
        rng: chooses replicas, and among equals in ``jsq``.
        warm_s: time averages begin here.
        enough: counted requests to see through.
    """
    if replica.max_num_seqs > replica.max_batched_tokens:
        raise ValueError("max_num_seqs must not exceed max_batched_tokens: each decode takes one token of the budget")
    rng = rng or np.random.default_rng(0)
    base_s = np.atleast_1d(replica.step.tau_s(np.arange(replica.max_num_seqs + 1.0), 0.0)).tolist()
    engines = [_Engine(replica=replica, base_s=base_s) for _ in range(replicas)]
    counted: list[Request] = []
    finished = 0
    warm = False
    end_s = warm_s
    for request in arrivals:
        if replica.kv_tokens is not None:
            longest = replica.kv_slope * (request.prompt + request.output) + replica.kv_fixed_tokens
            if longest > replica.kv_tokens:
                raise ValueError(f"a request of {longest:g} pool tokens never fits into {replica.kv_tokens:g}")
        if router == "jsq" or (not warm and request.arrival_s >= warm_s):
            for engine in engines:
                engine.run_until(request.arrival_s)
        if not warm and request.arrival_s >= warm_s:
            warm = True
            for engine in engines:
                engine.batch_area = engine.held_area = 0.0
        if router == "jsq":
            fewest = min(engine.in_system for engine in engines)
            tied = [engine for engine in engines if engine.in_system == fewest]
            chosen = tied[int(rng.integers(len(tied)))] if len(tied) > 1 else tied[0]
        else:
            chosen = engines[int(rng.integers(replicas))] if replicas > 1 else engines[0]
            chosen.run_until(request.arrival_s)
        chosen.accept(request)
        end_s = request.arrival_s
        if request.counted:
            counted.append(request)
        while finished < len(counted) and counted[finished].done_s == counted[finished].done_s:
            finished += 1
        if enough is not None and finished >= enough:
            break
    for engine in engines:
        engine.run_until(math.inf if enough is None else end_s)
    if enough is None:
        end_s = max(engine.now_s for engine in engines)
    span_s = max(end_s - warm_s, 1e-300) * replicas
    held = sum(engine.held_area for engine in engines) / span_s
    return SimResult(
        classes={
            name: _samples([request for request in counted if request.cls == name])
            for name in dict.fromkeys(request.cls for request in counted)
        },
        mean_batch=sum(engine.batch_area for engine in engines) / span_s,
        kv_fill=None if replica.kv_tokens is None else held / replica.kv_tokens,
        preemptions=float(np.mean([request.preemptions for request in counted])),
        share_waiting=float(np.mean([request.waited for request in counted])),
        steps=sum(engine.step for engine in engines),
    )


def simulate(
    replica: Replica,
    streams: Sequence[Stream],
    *,
    replicas: int = 1,
    router: Router = "random",
    requests: int = 10_000,
    seed: int = 0,
    warmup: float = 0.2,
) -> SimResult:
    """Simulate a pool under Poisson arrivals.

    The first ``warmup`` of ``requests`` fill the pool and are dropped. Arrivals go on until the last counted request is
    done, so that it meets the same load as the others. Prompt and output are drawn independently from the atoms of
    their laws (a fractional atom is rounded up or down at random, so that the mean stays); reasoning is drawn with the
    same uniform as the output, which keeps both marginal laws and reasoning <= output.

    Args:
        replica: what each of the ``replicas`` is.
        streams: classes, with the rates the whole pool receives.
        replicas: how many.
        router: ``random`` or ``jsq``.
        requests: requests of all classes, warm-up included.
        seed: of all draws.
        warmup: fraction dropped, in [0, 1).
    """
    first = int(requests * warmup)
    rng = np.random.default_rng(seed)
    drawn = _arrivals(streams, first=first, last=requests, rng=np.random.default_rng([seed, 1]))
    rate_rps = sum(stream.rate_rps for stream in streams)
    return replay(
        replica,
        drawn,
        replicas=replicas,
        router=router,
        rng=rng,
        warm_s=first / rate_rps,
        enough=requests - first,
    )


def _arrivals(
    streams: Sequence[Stream], *, first: int, last: int, rng: np.random.Generator, block: int = 4096
) -> Iterator[Request]:
    """Poisson arrivals without end; those with a number in [first, last) are counted."""
    rates = np.array([stream.rate_rps for stream in streams])
    now_s, number = 0.0, 0
    while True:
        times = now_s + np.cumsum(rng.exponential(1.0 / rates.sum(), block))
        now_s = float(times[-1])
        which = rng.choice(len(streams), size=block, p=rates / rates.sum())
        prompt, output, reasoning = (np.zeros(block, dtype=np.int64) for _ in range(3))
        for index, stream in enumerate(streams):
            mine = which == index
            uniform = rng.random(int(mine.sum()))
            prompt[mine] = _draw(stream.lengths.prompt, rng.random(uniform.size), rng)
            output[mine] = _draw(stream.lengths.output, uniform, rng)
            if stream.lengths.reasoning is not None:
                reasoning[mine] = np.minimum(_draw(stream.lengths.reasoning, uniform, rng, least=0), output[mine] - 1)
        for time_s, index, p, n, r in zip(
            times.tolist(), which.tolist(), prompt.tolist(), output.tolist(), reasoning.tolist(), strict=True
        ):
            yield Request(
                cls=streams[index].name,
                arrival_s=time_s,
                prompt=p,
                output=n,
                reasoning=r,
                counted=first <= number < last,
            )
            number += 1


def _draw(law: Law, uniform: FloatArray, rng: np.random.Generator, least: int = 1) -> IntArray:
    """Atoms of ``law`` at these uniforms as integers >= ``least``; fractions are rounded at random."""
    index = np.searchsorted(np.cumsum(law.weights), uniform * law.weights.sum())
    value = law.values[np.minimum(index, law.values.size - 1)]
    return np.asarray(np.maximum(np.floor(value + rng.random(value.size)), least), dtype=np.int64)


def _samples(requests: Sequence[Request]) -> ClassSamples:
    arrival, admitted, first, answer, done = (
        np.array([getattr(request, name) for request in requests])
        for name in ("arrival_s", "admitted_s", "first_token_s", "answer_s", "done_s")
    )
    output = np.array([request.output for request in requests])
    several = output >= 2
    return ClassSamples(
        ttft_s=first - arrival,
        answer_start_s=answer - arrival,
        tpot_s=(done - first)[several] / (output[several] - 1),
        completion_s=done - arrival,
        wait_s=admitted - arrival,
    )
