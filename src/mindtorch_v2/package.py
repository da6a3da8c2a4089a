"""torch.package, which is not here: programs that import it go on, a use refuses by name."""
from __future__ import annotations

from typing import Any

import mindtorch_v2 as torch

_WHY = "archives that carry their source code are not offered; save a state_dict with torch.save, or use torch.export"


class PackagingError(Exception):
    """Raised where a package cannot be made: here, always."""


class EmptyMatchError(Exception):
    """Raised where a pattern that had to match something matched nothing."""


class ObjMismatchError(Exception):
    """Raised where two importers know different objects by one name."""


class ObjNotFoundError(Exception):
    """Raised where no importer has an object."""


PackageExporter: Any = torch._facade.absent("torch.package.PackageExporter", _WHY)
PackageImporter: Any = torch._facade.absent("torch.package.PackageImporter", _WHY)
Importer: Any = torch._facade.absent("torch.package.Importer", _WHY)
OrderedImporter: Any = torch._facade.absent("torch.package.OrderedImporter", _WHY)
GlobGroup: Any = torch._facade.absent("torch.package.GlobGroup", _WHY)
Directory: Any = torch._facade.absent("torch.package.Directory", _WHY)


def is_from_package(obj: Any) -> bool:
    """False: no object is."""
    return False

__path__: list[str] = []       # modules that torch has below it are found by name

torch._named.complete(__name__)
