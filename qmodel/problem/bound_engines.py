"""Engine settings of GPU types and classes, with drafts looked up and every problem at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qmodel.errors import CatalogError, Problem, ScenarioError
from qmodel.problem.aic_steps import aic_missing
from qmodel.problem.engine_settings import ListedSettings, difference, listed_settings, with_engine
from qmodel.problem.replicas import no_prompt_room
from qmodel.types import Engine, Model, Pool, settings_text

if TYPE_CHECKING:
    from qmodel.catalog import Catalog
    from qmodel.problem.instances import GpuOption
    from qmodel.scenario import Scenario

__all__ = ["EngineBinder"]

_FIXED = ("name", "version")  # one engine for each GPU type
_Choices = tuple[Mapping[str, object], ...]


class EngineBinder:
    """Binds the engine sections of a scenario.

    Attributes:
        problems: found so far.
        notes: sentences a reader must know.
        drafts: records of models that draft, by name.
    """

    def __init__(self, scenario: Scenario, catalog: Catalog) -> None:
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.drafts: dict[str, Model] = {}
        self._scenario = scenario
        self._catalog = catalog
        self._usual: dict[str, Engine] = {}

    def engine(self, gpu: str, in_catalog: str | None) -> Engine:
        """Settings on a GPU type; of those with several values, the ones that leave prompts the most room.

        Args:
            gpu: entry of ``fleet.gpus``.
            in_catalog: the GPU of the catalog that it is; None: profiles only describe it.
        """
        found = self.listed(gpu, in_catalog)
        engine = self._with(self._usual[gpu], {**found.single, **found.roomiest}, gpu)
        if engine.step_times == "aic" and (missing := aic_missing()) is not None:
            self._reject(self._scenario.engine_key(gpu, "step_times"), *missing)
        self._check_room(engine, found, gpu)
        return engine

    def listed(self, gpu: str, in_catalog: str | None = None, cls: str | None = None) -> ListedSettings:
        """Settings as stated for a GPU type, and for a class if one is named."""
        if gpu not in self._usual:
            self._usual[gpu] = self._as_named(gpu, in_catalog)
        stated = self._scenario.engine_settings(gpu, cls)
        return listed_settings({key: value for key, value in stated.items() if key not in _FIXED}, self._usual[gpu])

    def settings(self, gpus: Mapping[str, GpuOption]) -> dict[tuple[str, str], _Choices]:
        """What each class may choose from on each GPU type, over the settings there; empty where that is nothing."""
        classes, found = self._scenario.classes, {}
        for gpu, option in gpus.items():
            whole, own = self.listed(gpu), {name: self.listed(gpu, cls=name) for name in classes}
            always = sorted({key for item in (whole, *own.values()) for key in item.listed})
            for name, item in own.items():
                found[name, gpu] = self._choices(gpu, option.engine, name, item, always)
            self._tell(gpu, found, own)
        return found if any(item != ({},) for item in found.values()) else {}

    def _as_named(self, gpu: str, in_catalog: str | None) -> Engine:
        """The engine on a GPU type with nothing stated but its name and version."""
        stated = self._scenario.engine_settings(gpu)
        name, version = str(stated.get("name", "vllm")), stated.get("version")
        if in_catalog is not None:
            try:
                return self._catalog.engine(name, self._catalog.gpu(in_catalog), version)
            except CatalogError as error:
                if version is not None and "version" in str(error):
                    self._reject_name(self._scenario.engine_key(gpu, "version"), error)
        return Engine(name=name)

    def _choices(self, gpu: str, base: Engine, cls: str, own: ListedSettings, always: Sequence[str]) -> _Choices:
        """Settings that a class may choose from, without those that leave prompts no room."""
        choices: list[Mapping[str, object]] = []
        for one in own.combinations():
            plain = {**own.single, **one}
            engine = self._with(self._usual[gpu], plain, gpu, cls)
            plain |= {key: getattr(engine, key) for key in always}
            if no_prompt_room(engine) is None:
                choices.append(difference(engine, base, plain, always))
        if self._scenario.classes[cls].engine is not None:
            self._check_room(self._with(self._usual[gpu], {**own.single, **own.roomiest}, gpu, cls), own, gpu, cls)
        return tuple(choices) or ({},)  # then a problem is reported

    def _tell(self, gpu: str, found: Mapping[tuple[str, str], _Choices], own: Mapping[str, ListedSettings]) -> None:
        """Notes on what is decided and on what classes ask for."""
        for name, item in own.items():
            choices = found[name, gpu]
            if self._scenario.classes[name].engine is not None:
                told = " or ".join(settings_text(one) or "those of the scenario" for one in choices)
                self.notes.append(f"class {name}: engine settings of its pools on {gpu}: {told}")
            left_out = len(item.combinations()) - len(choices)
            if left_out:
                told = f"{left_out} choices" if left_out > 1 else "one choice"
                what = "of max_num_seqs and max_batched_tokens not tried: no room for prompts beside full batches"
                self.notes.append(f"{gpu}: {told} {what}")
            if "fp8" in item.listed.get("kv_dtype", ()):
                self.notes.append("KV type fp8 is allowed: its effect on answer quality is not modelled")

    def _check_room(self, engine: Engine, found: ListedSettings, gpu: str, cls: str | None = None) -> None:
        """Refuse settings that leave no room for prompts in a step, whatever is chosen."""
        room = no_prompt_room(engine)
        if room is not None:
            stated = {**found.single, **found.listed}
            name = "max_batched_tokens" if "max_batched_tokens" in stated else "max_num_seqs"
            self._reject(self._scenario.engine_key(gpu, name, cls), *room)

    def _with(self, engine: Engine, settings: Mapping[str, Any], gpu: str, cls: str | None = None) -> Engine:
        """The engine with settings, its draft looked up."""
        drafting = settings.get("speculative")
        if drafting is not None:
            self.find_draft(f"{self._scenario.engine_key(gpu, 'speculative', cls)}.draft", str(drafting["draft"]))
        return with_engine(engine, settings, self.drafts)

    def find_draft(self, key: str, draft: str) -> None:
        """Look a draft up; an unknown one is a problem at ``key``."""
        if draft in ("mtp", "eagle") or draft in self.drafts:
            return
        try:
            self.drafts[draft] = self._catalog.model(draft, base_dir=self._scenario.base_dir)
        except CatalogError as error:
            self._reject_name(key, error)
        except ScenarioError as error:
            self.problems += error.problems

    def find_pool_draft(self, name: str, pool: Pool) -> None:
        """Look up the draft of a pool of a fleet; an unknown one is a problem of the fleet."""
        drafting = pool.engine.get("speculative")
        if not isinstance(drafting, Mapping) or drafting["draft"] in ("mtp", "eagle"):
            return
        try:
            self.drafts[drafting["draft"]] = self._catalog.model(drafting["draft"], base_dir=self._scenario.base_dir)
        except CatalogError as error:
            what, _, hint = str(error).partition("; ")
            key = f"pools.{name}.engine.speculative.draft"
            self.problems.append(Problem(what=what, hint=hint, file="<fleet>", key=key))
        except ScenarioError as error:
            self.problems += error.problems

    def _reject(self, key: str, what: str, hint: str = "") -> None:
        self.problems.append(self._scenario.problem(key, what, hint))

    def _reject_name(self, key: str, error: CatalogError) -> None:
        what, _, hint = str(error).partition("; ")
        self._reject(key, what, hint)
