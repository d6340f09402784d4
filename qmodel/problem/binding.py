"""Bind a scenario to the catalog, its traces and its profiles; every unknown name reported with its position."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qmodel.catalog import Catalog, load_catalog
from qmodel.errors import CatalogError, Problem, ScenarioError
from qmodel.problem.batches import batch_problems
from qmodel.problem.bound_apis import bind_apis
from qmodel.problem.bound_engines import EngineBinder
from qmodel.problem.calibrations import calibration_notes, known_catalog, unused_calibrations
from qmodel.problem.demand import bind_class
from qmodel.problem.fleet_limits import bind_limits
from qmodel.problem.gpu_power import GpuPower, power_of
from qmodel.problem.gpu_prices import BoundPrices, bind_prices
from qmodel.problem.instances import GpuOption, Instance, LayoutRules, Policy, Price, Profile
from qmodel.problem.names import unknown_names
from qmodel.problem.notes import engine_note, hardware_note, layouts_note, priority_notes
from qmodel.problem.objectives import bind_objective
from qmodel.problem.other_lengths import bind_lengths
from qmodel.problem.patience import patience_problems
from qmodel.problem.periods import bind_periods, largest_factor, limits_by_hour
from qmodel.problem.profiles import profiled_replica
from qmodel.problem.replicas import no_prompt_room
from qmodel.problem.slo_scope import slo_scope_problems
from qmodel.types import (
    Fleet,
    Limits,
    MeasuredCapacity,
    Model,
    Pool,
    Replica,
    RequestClass,
)

if TYPE_CHECKING:
    from qmodel.scenario import Scenario
    from qmodel.scenario.fleet_section import GpuSpec, ProfileSpec

__all__ = ["bind", "name_problems", "price_of"]


def bind(scenario: Scenario, catalog: Catalog | None = None, *, fleet: Fleet | None = None) -> Instance:
    """The typed problem of a scenario, with every name resolved.

    Args:
        scenario: checked against its schema.
        catalog: names, prices and constants; None: the shipped catalog under the scenario's own files.
        fleet: that will be looked at; the models that draft in its pools are looked up too.

    Raises:
        ScenarioError: names that are not known, GPUs without a price, traces that cannot be used; all at once.
    """
    known = catalog or known_catalog(scenario)
    binder = _Binder(scenario, known)
    for name, pool in () if fleet is None else fleet.pools.items():
        binder.engines.find_pool_draft(name, pool)
    binder.problems += unknown_names(scenario.resolved(), known, scenario.problem)
    instance = binder.instance()
    if binder.problems:
        raise ScenarioError(dict.fromkeys(binder.problems))
    return instance


def name_problems(scenario: Scenario) -> list[Problem]:
    """What :func:`bind` would raise and the unknown names of variants, as a list; empty where all can be planned."""
    try:
        bind(scenario)
    except ScenarioError as error:
        problems = list(error.problems)
    else:
        problems = []
    catalog = load_catalog(scenario.catalog_files)
    for variant in scenario.variants:
        try:
            derived = scenario.with_(apply=[variant])
        except ScenarioError:  # it does not go with the variants applied now; alone it was checked with the file
            continue
        problems += unknown_names(derived.resolved(), catalog, derived.problem)
    return list({str(problem): problem for problem in problems}.values())


def price_of(instance: Instance, pool: Pool) -> Price:
    """The price of a pool's GPUs: what the pool states, else that of the GPU option."""
    if pool.usd_per_gpu_hour is None:
        return instance.gpus[pool.gpu].price
    option = instance.gpus[pool.gpu].price
    if pool.usd_per_gpu_hour == option.usd_per_gpu_hour and pool.price_tier == option.tier:
        return option
    return Price(usd_per_gpu_hour=pool.usd_per_gpu_hour, tier=pool.price_tier, basis="stated in the fleet")


class _Binder:
    """Collects problems and assumptions while the parts of an instance are made."""

    def __init__(self, scenario: Scenario, catalog: Catalog) -> None:
        self.scenario = scenario
        self.catalog = catalog
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self.profiled_gpus = {item.gpu for item in scenario.profiles}
        self.engines = EngineBinder(scenario, catalog)

    def instance(self) -> Instance:
        scenario = self.scenario
        models = self._models()
        classes = self._classes(models)
        gpus = {
            name: option for name, spec in scenario.fleet.gpus.items() if (option := self._gpu(name, spec)) is not None
        }
        settings = self.engines.settings(gpus)
        self.problems += self.engines.problems
        self.assumptions += self.engines.notes
        profiles = self._profiles(gpus)
        rules = self._layouts(gpus.values())
        self.problems += unused_calibrations(scenario, self.catalog, models, gpus, rules.precisions)
        self.assumptions += calibration_notes(self.catalog, models, gpus, rules.precisions)
        limits = self._limits(gpus)
        apis, wrong_apis, notes = bind_apis(scenario)
        self.problems += wrong_apis
        self.assumptions += notes
        self.problems += batch_problems(scenario, limits, gpus, settings)
        self.problems += patience_problems(scenario, classes, gpus)
        self.problems += slo_scope_problems(scenario)
        objective, wrong = bind_objective(scenario, limits)
        self.problems += wrong
        lengths, wrong, notes = bind_lengths(scenario, models)
        self.problems += wrong
        self.assumptions += notes
        periods, wrong, notes = bind_periods(scenario, lengths)
        self.problems += wrong
        self.assumptions += notes
        if periods is not None and periods.fleet_changes:
            limits = limits_by_hour(limits)
        return Instance(
            title=scenario.title or Path(scenario.file).stem,
            classes=classes,
            models=models,
            gpus=gpus,
            profiles=profiles,
            layouts=rules,
            policy=Policy(confidence=scenario.policy.confidence, slo_scope=scenario.policy.slo_scope),
            constants=self.catalog.constants,
            limits=limits,
            settings=settings,
            drafts=self.engines.drafts,
            apis=apis,
            objective=objective,
            periods=periods,
            assumptions=tuple(dict.fromkeys(self.assumptions)),
            scenario=scenario.resolved(),
            catalog_digest=self.catalog.digest,
        )

    def _reject(self, key: str, what: str, hint: str = "") -> None:
        self.problems.append(self.scenario.problem(key, what, hint))

    def _reject_name(self, key: str, error: CatalogError) -> None:
        what, _, hint = str(error).partition("; ")
        self._reject(key, what, hint)

    def _models(self) -> dict[str, Model | None]:
        found: dict[str, Model | None] = {}
        for name in dict.fromkeys(name for spec in self.scenario.classes.values() for name in spec.served_by):
            try:
                found[name] = self.catalog.model(name, base_dir=self.scenario.base_dir)
            except CatalogError:  # profiled, or reported by unknown_names
                found[name] = None
            except ScenarioError as error:
                self.problems += error.problems
                found[name] = None
        return found

    def _classes(self, models: Mapping[str, Model | None]) -> dict[str, RequestClass]:
        classes = {}
        for name, spec in self.scenario.classes.items():
            try:
                factor = largest_factor(self.scenario, name)
                bound, notes = bind_class(self.scenario, name, spec, models, factor=factor)
            except ScenarioError as error:
                self.problems += error.problems
                continue
            classes[name] = bound
            self.assumptions += notes
        self.assumptions += priority_notes(classes)
        return classes

    def _gpu(self, name: str, spec: GpuSpec) -> GpuOption | None:
        key, named = f"fleet.gpus.{name}", spec.gpu or name
        if not self.catalog.has_gpu(named):
            return self._profiled_gpu(name, spec) if {name, named} & self.profiled_gpus else None
        gpu = self.catalog.gpu(named)
        try:
            node = self.catalog.node(spec.node) if spec.node else self.catalog.default_node(named)
            fabric_name = spec.fabric or node.nic_fabric
            fabric = self.catalog.fabric(fabric_name) if fabric_name else None
            topology = self.catalog.topology(spec.topology or "rail-fat-tree")
        except CatalogError:  # reported by unknown_names
            return None
        if node.gpu != gpu.name:
            self._reject(f"{key}.node", f"node '{node.name}' has {node.gpu} GPUs", f"default: '{self._default(named)}'")
        prices = self._prices(name, named, power_of(spec, gpu, node))
        if prices.price is None:
            return None
        engine = self.engines.engine(name, named)
        if named != name:
            self.assumptions.append(f"{name}: {gpu.name} of the catalog{_from(spec)}")
        self.assumptions.append(hardware_note(name, node, fabric, topology))
        self.assumptions.append(f"{name}: {engine_note(engine, self.engines.listed(name, named))}")
        if gpu.constants_status != "fitted":
            self.assumptions.append(f"{name}: step-time constants are {_STATUS[gpu.constants_status]}")
        return GpuOption(
            name=name,
            gpu=gpu,
            node=node,
            fabric=fabric,
            topology=topology,
            price=prices.price,
            offers=prices.offers,
            engine=engine,
        )

    def _default(self, name: str) -> str:
        return self.catalog.default_node(name).name

    def _profiled_gpu(self, name: str, spec: GpuSpec) -> GpuOption | None:
        for part in ("node", "fabric", "topology"):
            if getattr(spec, part) is not None:
                self._reject(f"fleet.gpus.{name}.{part}", f"'{name}' is known by profiles only", f"leave {part} out")
        prices = self._prices(name, None, power_of(spec, None, None))
        if prices.price is None:
            return None
        return GpuOption(
            name=name,
            gpu=None,
            node=None,
            fabric=None,
            topology=None,
            price=prices.price,
            offers=prices.offers,
            engine=self.engines.engine(name, None),
        )

    def _prices(self, name: str, gpu: str | None, power: GpuPower | None) -> BoundPrices:
        found = bind_prices(self.scenario, self.catalog, name, gpu=gpu, power=power)
        self.problems += found.problems
        self.assumptions += found.notes
        return found

    def _profiles(self, gpus: Mapping[str, GpuOption]) -> dict[tuple[str, str], tuple[Profile, ...]]:
        used = {name for spec in self.scenario.classes.values() for name in spec.served_by}
        found: dict[tuple[str, str], tuple[Profile, ...]] = {}
        for index, spec in enumerate(self.scenario.profiles):
            names = self._entries_of(spec.gpu)
            if not names:
                self._unused_profile(index, spec)
            bound = [gpus[name] for name in names if name in gpus]
            if not bound or spec.model not in used:
                continue
            measured = self._measured(index, spec)
            for option in bound:
                replica = measured or profiled_replica(spec, option.engine)
                profile = Profile(
                    model=spec.model,
                    gpu=option.name,
                    layout=spec.layout.layout,
                    replica=replica,
                    max_num_seqs=spec.max_num_seqs,
                )
                room = no_prompt_room(replica) if isinstance(replica, Replica) else None
                if room is not None and no_prompt_room(option.engine) is None:  # else said of the engine already
                    self._reject(f"profiles[{index}].max_num_seqs", *room)
                pair = (spec.model, option.name)
                if any(item.layout == profile.layout for item in found.get(pair, ())):
                    what = f"{spec.model} on {option.name} in layout {profile.layout} is profiled twice"
                    self._reject(f"profiles[{index}]", what, "keep one")
                found[pair] = (*found.get(pair, ()), profile)
        return found

    def _entries_of(self, gpu: str) -> list[str]:
        """Entries of ``fleet.gpus`` that a profile of a GPU describes: the one of its name, and those that name it."""
        return [name for name, spec in self.scenario.fleet.gpus.items() if gpu in (name, spec.gpu)]

    def _measured(self, index: int, spec: ProfileSpec) -> MeasuredCapacity | None:
        """The measured capacity that a profile states, its class names checked; None where it states step times."""
        if spec.max_rate_rps is None:
            return None
        classes = self.scenario.classes
        unnamed = [name for name in classes if name not in spec.max_rate_rps]
        unused = []
        for name in spec.max_rate_rps:
            key = f"profiles[{index}].max_rate_rps.{name}"
            if name in classes:
                if spec.model not in classes[name].served_by:
                    asked = " or ".join(classes[name].served_by)
                    self._reject(key, f"class '{name}' asks for {asked}", "take it out")
                elif classes[name].batch is not None:
                    what = f"class '{name}' is a batch: a rate does not say when it is done"
                    self._reject(key, what, "take it out, and profile step times")
            elif near := difflib.get_close_matches(name, unnamed, n=1, cutoff=_TYPO):
                self._reject(key, f"no class '{name}'", f"did you mean '{near[0]}'?")
            else:
                unused.append(name)
        place = f"{spec.model} on {spec.gpu} {spec.layout.layout}"
        if unused:
            self.assumptions.append(f"{place}: capacities for {', '.join(unused)} are not used: no such class")
        rates = {name: rate for name, rate in spec.max_rate_rps.items() if name in classes}
        self.assumptions.append(f"{place}: capacities as measured, linear in the mix; latency is not predicted")
        return MeasuredCapacity(max_rate_rps=rates)

    def _unused_profile(self, index: int, spec: ProfileSpec) -> None:
        """A profile of a GPU that the fleet may not use: a typo is a problem, a GPU left out is worth a note."""
        near = difflib.get_close_matches(spec.gpu, self.scenario.fleet.gpus, n=1, cutoff=_TYPO)
        if near:
            self._reject(f"profiles[{index}].gpu", f"'{spec.gpu}' is not in fleet.gpus", f"did you mean '{near[0]}'?")
        self.assumptions.append(f"the profile of {spec.model} on {spec.gpu} is not used: fleet.gpus leaves it out")

    def _limits(self, gpus: Mapping[str, GpuOption]) -> Limits:
        limits, problems, notes = bind_limits(self.scenario, gpus)
        self.problems += problems
        self.assumptions += notes
        return limits

    def _layouts(self, gpus: Iterable[GpuOption]) -> LayoutRules:
        spec, usual = self.scenario.layouts, LayoutRules()
        precisions = ("auto",) if spec.precision == "auto" else tuple(spec.precision)
        for name in precisions:
            if name != "auto":
                self.assumptions.append(f"precision {name} is allowed: its effect on answer quality is not modelled")
        choosing = [name for name, item in self.scenario.classes.items() if len(item.served_by) > 1]
        for one in (name for name in choosing if self.scenario.classes[name].batch is not None):
            what = "not supported yet: several models for a batch"
            self._reject(f"classes.{one}.models", what, "state one model, or a rate and a completion target")
        rules = LayoutRules(
            tp=usual.tp if spec.tp == "auto" else spec.tp,
            pp=usual.pp if spec.pp == "auto" else spec.pp,
            ep=spec.ep,
            dp=spec.dp,
            cp=usual.cp if spec.cp == "auto" else spec.cp,
            precisions=precisions,
            disaggregate=False if self.scenario.policy.slo_scope == "fleet" else spec.disaggregate,
        )
        if any(option.gpu is not None for option in gpus):
            self.assumptions.append(layouts_note(rules))
        return rules


def _from(spec: GpuSpec) -> str:
    """Who sells a GPU and where, in words."""
    provider = f" from {spec.provider}" if spec.provider else ""
    return f"{provider} in {spec.region}" if spec.region else provider


_TYPO = 0.8  # similarity from which a name counts as misspelt; H100 and A100 are 0.75 alike
_STATUS = {
    "thin": "fitted to few points",
    "guess": "a guess without a measurement",
    "none": "taken from the nearest GPU of the same vendor",
}
