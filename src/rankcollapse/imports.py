"""Which modules of this package a file really imports: the code a rule depends on."""

import ast
from functools import cache
from pathlib import Path


def package_imports(entry: Path, package: Path) -> list[Path]:
    """Return the files of ``package`` that ``entry`` imports, directly or through other files of it, sorted.

    ``entry`` itself is left out unless it lies in the package. Imports are read from the source, nothing is run;
    a test compares the answer with ``sys.modules``.
    """
    found: set[Path] = {entry} if package in entry.parents else set()
    queue = [entry]
    while queue:
        path = queue.pop()
        new = (_direct(path, package) | _packages_of(path, package)) - found
        found |= new
        queue += new
    return sorted(found)


def _packages_of(path: Path, package: Path) -> frozenset[Path]:
    """Return the ``__init__.py`` that Python runs before the file itself, the top package's left out."""
    above = (parent for parent in path.parents if package in parent.parents)
    return frozenset(parent / "__init__.py" for parent in above)


@cache
def _direct(path: Path, package: Path) -> frozenset[Path]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return frozenset(file for name in names for file in _files(name, package))


def _files(name: str, package: Path) -> list[Path]:
    head, *rest = name.split(".")
    if head != package.name:
        return []
    base = package.joinpath(*rest)
    return [file for file in (base.with_suffix(".py"), base / "__init__.py") if file.is_file() and rest]
