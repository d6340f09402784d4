"""The weight type that a checkpoint's configuration declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from qmodel.catalog.config_fields import ConfigFields

__all__ = ["checkpoint_dtype", "sixteen_bit_parts"]

_SIXTEEN_BIT = ("bfloat16", "float16", "float32")  # engines load 32-bit checkpoints at 16 bit
_LEFT_OUT = ("ignore", "modules_to_not_convert", "exclude_modules")
_METHODS = "fp8, mxfp4, modelopt (FP8, NVFP4), compressed-tensors (FP8, INT4, NVFP4), awq and gptq at 4 bit"


def checkpoint_dtype(fields: ConfigFields) -> str:
    """The catalog's name of the weight type; a problem is noted where it is missing or not known.

    Args:
        fields: the configuration; ``quantization_config`` stands at the top of the file or with the fields.

    Returns:
        ``bf16``, ``fp8``, ``fp8-block128``, ``mxfp4``, ``nvfp4``, ``int4-g32``, ...; ``bf16`` with a problem.

    Reference: the ``quantization_config`` of Hugging Face transformers, compressed-tensors and NVIDIA ModelOpt.
    """
    config = fields.root.get("quantization_config") or fields.get("quantization_config")
    if isinstance(config, Mapping):
        found = _quantised(config)
        if found is None:
            method = config.get("quant_method") or config.get("quant_algo")
            what = f"quantisation {method!r} with these settings is not known"
            fields.refuse_root("quantization_config", what, f"known: {_METHODS}")
        return found or "bf16"
    declared = [fields.get(key) or fields.root.get(key) for key in ("torch_dtype", "dtype")]
    stated = next((value for value in declared if value), None)
    if stated is None:
        fields.refuse("torch_dtype", "is missing", f"one of {', '.join(_SIXTEEN_BIT)}")
    elif stated not in _SIXTEEN_BIT:
        fields.refuse("torch_dtype", f"weight type {stated!r} is not known", f"one of {', '.join(_SIXTEEN_BIT)}")
    return "bf16"


def sixteen_bit_parts(
    fields: ConfigFields, layers: int, *, shared_experts: bool
) -> tuple[Literal["attention", "dense"], ...]:
    """Tensor classes that a quantised checkpoint leaves at 16 bit in at least half of its layers.

    Args:
        fields: the configuration; ``ignore``, ``modules_to_not_convert`` or ``exclude_modules`` name modules or
            patterns of them.
        layers: layers of the model.
        shared_experts: the model has shared experts, which then count as dense layers.
    """
    config = fields.root.get("quantization_config") or fields.get("quantization_config")
    if not isinstance(config, Mapping):
        return ()
    nested = config.get("quantization")
    places = [config, nested] if isinstance(nested, Mapping) else [config]
    names = [str(name) for place in places for key in _LEFT_OUT for name in place.get(key) or ()]
    dense = ("shared_expert",) if shared_experts else (".mlp.gate_proj", ".mlp.up_proj", ".mlp.down_proj")
    found: list[Literal["attention", "dense"]] = []
    if _share(names, ("attn", "attention"), layers) >= 0.5:
        found.append("attention")
    if _share(names, dense, layers) >= 0.5:
        found.append("dense")
    return tuple(found)


def _share(names: list[str], words: tuple[str, ...], layers: int) -> float:
    """Share of the layers in which a module with one of the words is left out."""
    touched = [name for name in names if any(word in name for word in words)]
    numbers = [re.search(r"layers\.(\d+)\.", name) for name in touched]
    if any(number is None for number in numbers):
        return 1.0
    return len({int(number[1]) for number in numbers if number}) / layers


def _quantised(config: Mapping[str, Any]) -> str | None:
    method = str(config.get("quant_method") or "").lower()
    if method == "fp8":
        return _fp8(config.get("weight_block_size"))
    if method == "mxfp4":
        return "mxfp4"
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin"):
        return _int4(config.get("bits"), config.get("group_size"))
    if method == "compressed-tensors":
        return _compressed_tensors(config)
    if method.startswith("modelopt"):
        nested = config.get("quantization")
        algorithm = config.get("quant_algo") or (nested.get("quant_algo") if isinstance(nested, Mapping) else None)
        return {"FP8": "fp8", "NVFP4": "nvfp4"}.get(str(algorithm).upper())
    return None


def _compressed_tensors(config: Mapping[str, Any]) -> str | None:
    groups = config.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        return None
    found = {_tensor_group(group) for group in groups.values()}
    return found.pop() if len(found) == 1 else None


def _tensor_group(group: Any) -> str | None:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    kind, bits = weights.get("type"), weights.get("num_bits")
    if kind == "float" and bits == 8:
        return _fp8(weights.get("block_structure"))
    if kind == "float" and bits == 4:
        return {16: "nvfp4", 32: "mxfp4"}.get(weights.get("group_size") or 0)
    return _int4(bits, weights.get("group_size")) if kind == "int" else None


def _fp8(block: Any) -> str | None:
    if block is None:
        return "fp8"
    if isinstance(block, list) and len(block) == 2 and block[0] == block[1] and isinstance(block[0], int):
        return f"fp8-block{block[0]}"
    return None


def _int4(bits: Any, group_size: Any) -> str | None:
    if bits != 4 or not isinstance(group_size, int) or group_size < 1:
        return None
    return f"int4-g{group_size}"
