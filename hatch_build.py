"""Compiles the catalog when a wheel or an editable installation is built, so that both load it in milliseconds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Checks the data files and writes the compiled one; a number without a source stops the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files."""
        sys.path.insert(0, self.root)
        try:
            from qmodel.catalog.compilation import DATA, write_compiled

            write_compiled()
        finally:
            sys.path.remove(self.root)
        # git ignores the compiled file, hatchling would leave it out
        build_data["artifacts"].append((DATA / "compiled.json").relative_to(Path(self.root)).as_posix())
