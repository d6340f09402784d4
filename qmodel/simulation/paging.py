"""Blocks of KV memory: who needs the next block when, counted without touching sequences."""

from __future__ import annotations

__all__ = ["BlockPhases"]


class BlockPhases:
    """Decoding sequences counted by how far each is from its next block.

    A sequence that holds ``context`` tokens after ``step`` steps takes a new block in every step number s with
    (context - step + s) divisible by the block size, so context - step modulo that size never changes.
    """

    __slots__ = ("_counts", "block")

    def __init__(self, block: int) -> None:
        self.block = block
        self._counts = [0] * block

    def join(self, context: int, step: int) -> None:
        self._counts[(context - step) % self.block] += 1

    def leave(self, context: int, step: int) -> None:
        self._counts[(context - step) % self.block] -= 1

    def clear(self) -> None:
        self._counts = [0] * self.block

    def growth(self, step: int, steps: int, decoding: int) -> int:
        """Tokens of new blocks in ``steps`` steps after step number ``step``."""
        block, counts = self.block, self._counts
        rounds, rest = divmod(steps, block)
        blocks = rounds * decoding
        for s in range(step, step + rest):
            blocks += counts[-s % block]
        return blocks * block

    def most_steps(self, step: int, room: float, decoding: int, most: int) -> int:
        """The largest number of steps, at most ``most``, whose new blocks fit into ``room`` tokens."""
        block, counts = self.block, self._counts
        if (most // block + 1) * decoding * block <= room:
            return most
        rounds = min(max(int(room // (decoding * block)) - 1, 0), most // block)
        used, steps = rounds * decoding * block, rounds * block
        while steps < most:
            used += counts[-(step + steps) % block] * block
            if used > room:
                return steps
            steps += 1
        return steps

    def weighted_growth(self, step: int, steps: int, first_s: float, slope_s: float) -> float:
        """Sum over steps j < ``steps`` of the step's length times the tokens of blocks taken in steps 0..j-1."""
        block = self.block
        total = 0.0
        for phase, count in enumerate(self._counts):
            if count:
                lead = (-step - phase) % block  # steps from here to this phase's first new block, which counts after it
                beyond = steps - lead - 1
                if beyond > 0:
                    total += count * block * _staircase(beyond, block, first_s + (lead + 1) * slope_s, slope_s)
        return total


def _staircase(steps: int, block: int, first_s: float, slope_s: float) -> float:
    """Sum over j < ``steps`` of (1 + floor(j / block)) (first_s + j slope_s)."""
    rounds, rest = divmod(steps, block)
    whole = block * rounds * (rounds - 1) / 2 + rounds * rest
    inner = block * (block - 1) / 2
    moment = block * block * ((rounds - 1) * rounds * (2 * rounds - 1) / 6) + inner * rounds * (rounds - 1) / 2
    moment += rounds * (rest * rounds * block + rest * (rest - 1) / 2)
    return first_s * (steps + whole) + slope_s * (steps * (steps - 1) / 2 + moment)
