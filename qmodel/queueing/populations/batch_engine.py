"""One replica working off a queue of requests that are all present at time 0."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from qmodel.types.laws import FloatArray, IntArray
from qmodel.types.replica import Replica

__all__ = ["DrainRun", "drain", "pool_tokens"]

_LONGEST_BLOCK = 16  # steps; completions inside a block free their slot at its end
_BLOCKS_PER_OUTPUT = 100.0  # so a slot idles at most half a per cent of a mean request


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrainRun:
    """One replica that worked off its queue.

    Attributes:
        first_token_s: of every request, in queue order, s, shape (n,).
        completion_s: likewise.
        outputs: tokens generated, shape (n,).
        preemptions: evictions.
        recomputed_tokens: tokens prefilled again after them.
        time_s: ends of steps or of runs of equal steps, ascending, shape (k,).
        steps: done by then, shape (k,).
        running: sequences in the replica from the time before to that time, shape (k,).
        held_tokens: KV pool tokens that they hold then, shape (k,).
    """

    first_token_s: FloatArray
    completion_s: FloatArray
    outputs: FloatArray
    preemptions: int
    recomputed_tokens: float
    time_s: FloatArray
    steps: FloatArray
    running: FloatArray
    held_tokens: FloatArray


def pool_tokens(replica: Replica, context: float, sequences: int = 1) -> float:
    """KV pool tokens that ``sequences`` hold whose contexts add up to ``context``."""
    return replica.kv_slope * context + replica.kv_fixed_tokens * sequences


def drain(replica: Replica, prompts: FloatArray, outputs: FloatArray) -> DrainRun:
    """Step a replica until its queue is empty.

    Args:
        replica: slots, memory, token budget and step law.
        prompts: prompt tokens in queue order, shape (n,).
        outputs: output tokens in queue order, at least 1, shape (n,); none may exceed the memory alone.

    Returns:
        :class:`DrainRun`.
    """
    state = _State(replica=replica, prompts=prompts, outputs=outputs)
    block = int(np.clip(round(float(outputs.mean()) / _BLOCKS_PER_OUTPUT), 1, _LONGEST_BLOCK))
    while state.waiting or state.prefilling or state.ids.size:
        evicted = state.make_room()
        if not evicted:  # an engine that has just evicted admits nothing in the same step
            state.admit()
        state.advance(block)
    time_s, steps, running, held = np.array(state.course, dtype=float).reshape(-1, 4).T
    return DrainRun(
        first_token_s=state.first_token_s,
        completion_s=state.completion_s,
        outputs=outputs,
        preemptions=state.preemptions,
        recomputed_tokens=state.recomputed_tokens,
        time_s=time_s,
        steps=np.cumsum(steps),
        running=running,
        held_tokens=held,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class _State:
    """Decoding sequences as arrays in order of admission; prompts under way and the queue as deques.

    Attributes:
        ids: requests that decode, shape (b,).
        context: tokens they hold, shape (b,).
        left: tokens they still have to generate, shape (b,).
        prefilling: (request, prompt tokens not yet processed, tokens held, tokens to generate).
        waiting: (request, prompt tokens to process, tokens to generate).
        held: contexts of all resident sequences, tokens.
        promised: prompts and outputs of all resident sequences in full, tokens.
        course: (end, steps, sequences, pool tokens they hold) of every step or run of steps.
    """

    replica: Replica
    prompts: FloatArray
    outputs: FloatArray
    now_s: float = 0.0
    ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    context: FloatArray = field(default_factory=lambda: np.empty(0))
    left: FloatArray = field(default_factory=lambda: np.empty(0))
    prefilling: deque[tuple[int, float, float, float]] = field(default_factory=deque)
    waiting: deque[tuple[int, float, float]] = field(init=False)
    held: float = 0.0
    promised: float = 0.0
    preemptions: int = 0
    recomputed_tokens: float = 0.0
    course: list[tuple[float, int, int, float]] = field(default_factory=list)
    first_token_s: FloatArray = field(init=False)
    completion_s: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.waiting = deque(zip(range(self.prompts.size), self.prompts.tolist(), self.outputs.tolist(), strict=True))
        self.first_token_s = np.full(self.prompts.size, np.nan)
        self.completion_s = np.full(self.prompts.size, np.nan)

    @property
    def resident(self) -> int:
        return int(self.ids.size) + len(self.prefilling)

    def make_room(self) -> bool:
        """Evict the newest until every decoding sequence can grow by one token."""
        room, before = self.replica.kv_tokens, self.preemptions
        if room is None or self.replica.admission == "no_evict":
            return False
        while self.resident > 1 and pool_tokens(self.replica, self.held + self.ids.size, self.resident) > room:
            self._evict_newest()
        return self.preemptions > before

    def admit(self) -> None:
        """First come, first served while slots and memory last."""
        replica = self.replica
        room = np.inf if replica.kv_tokens is None else (1.0 - replica.watermark) * replica.kv_tokens
        while self.waiting and self.resident < replica.max_num_seqs:
            request, prompt, left = self.waiting[0]
            claimed = self.promised + prompt + left if replica.admission == "no_evict" else self.held + prompt
            if self.resident and pool_tokens(replica, claimed, self.resident + 1) > room:
                return
            self.waiting.popleft()
            self.prefilling.append((request, prompt, prompt, left))
            self.held += prompt
            self.promised += prompt + left

    def advance(self, block: int) -> None:
        """One step if prompts are under way, else as many as pass until something happens."""
        replica, batch = self.replica, int(self.ids.size)
        running, held = self.resident, pool_tokens(replica, self.held, self.resident)
        quota = max(replica.max_batched_tokens - batch, 1) if self.prefilling else 0
        steps = 1 if self.prefilling else self._quiet_steps(block)
        chunk, finished = self._prefill(quota)

        done = np.minimum(self.left, steps)  # tokens each sequence generates now
        tokens = float(done.sum())
        mean_batch = tokens / steps
        read = float(done @ (self.context + (done - 1.0) / 2.0)) / steps if batch else 0.0
        law = replica.step
        tau_s = float(law.tau_s(mean_batch, read / mean_batch if mean_batch else 0.0))
        span_s = steps * tau_s + law.delta_s * chunk
        self._decode(done, tokens, steps, span_s)
        self.now_s += span_s
        self.course.append((self.now_s, steps, running, held))
        self._start_decoding(finished)

    def _quiet_steps(self, block: int) -> int:
        steps = max(float(self.left.min()), min(float(block), float(self.left.max())))
        if self.replica.kv_tokens is not None and self.replica.admission != "no_evict":
            free = self.replica.kv_tokens - pool_tokens(self.replica, self.held, self.resident)
            growth = max(self.replica.kv_slope, 1e-12) * self.ids.size
            steps = min(steps, max(float(np.floor(free / growth)), 1.0))
        return int(steps)

    def _prefill(self, quota: float) -> tuple[float, list[tuple[int, float, float]]]:
        """Process up to ``quota`` prompt tokens, oldest first; the tokens processed and the prompts finished."""
        processed, finished = 0.0, []
        while self.prefilling and processed < quota:
            request, unprocessed, held, left = self.prefilling.popleft()
            take = min(unprocessed, quota - processed)
            processed += take
            if take < unprocessed:
                self.prefilling.appendleft((request, unprocessed - take, held, left))
            else:
                finished.append((request, held, left))
        return processed, finished

    def _decode(self, done: FloatArray, tokens: float, steps: int, span_s: float) -> None:
        ended = self.left <= steps
        self.held += tokens
        self.context = self.context + done
        if ended.any():
            gone = self.ids[ended]
            self.completion_s[gone] = self.now_s + span_s * self.left[ended] / steps
            released = float(self.context[ended].sum())
            self.held -= released
            self.promised -= released
            kept = ~ended
            self.ids, self.context, self.left = self.ids[kept], self.context[kept], self.left[kept] - done[kept]
        else:
            self.left = self.left - done

    def _start_decoding(self, finished: list[tuple[int, float, float]]) -> None:
        """A finished prompt yields its next token at once."""
        joined = []
        for request, held, left in finished:
            if np.isnan(self.first_token_s[request]):
                self.first_token_s[request] = self.now_s
            if left <= 1.0:
                self.completion_s[request] = self.now_s
                self.held -= held
                self.promised -= held + left
            else:
                self.held += 1.0
                joined.append((request, held + 1.0, left - 1.0))
        if joined:
            ids, context, left_over = zip(*joined, strict=True)
            self.ids = np.concatenate([self.ids, np.asarray(ids, dtype=np.int64)])
            self.context = np.concatenate([self.context, np.asarray(context)])
            self.left = np.concatenate([self.left, np.asarray(left_over)])

    def _evict_newest(self) -> None:
        """The newest goes back to the head of the queue; its tokens so far become part of its prompt."""
        if self.prefilling:
            request, unprocessed, held, left = self.prefilling.pop()
            lost = held - unprocessed
        else:
            request, held, left = int(self.ids[-1]), float(self.context[-1]), float(self.left[-1])
            lost = held
            self.ids, self.context, self.left = self.ids[:-1], self.context[:-1], self.left[:-1]
        self.waiting.appendleft((request, held, left))
        self.held -= held
        self.promised -= held + left
        self.preemptions += 1
        self.recomputed_tokens += lost
