"""What the workflow's rules ask: checked settings, input files, criteria, and what to say at the end.

Everything here runs at every start of snakemake, before any job, so it imports neither torch nor numpy.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from rankcollapse.catalogue import Catalogue, Figure, load_catalogue
from rankcollapse.config import Config, Measurements, check_config, input_files, plain
from rankcollapse.imports import package_imports
from rankcollapse.inputs import check_inputs
from rankcollapse.places import Places, check_writable
from rankcollapse.validation import ConfigError, allowed

PACKAGE = Path(__file__).parent
PUBLISHED = Path("resources/published")
MEASUREMENTS = tuple(get_type_hints(Measurements))

# What takes longest (docs/performance.md), started first and in this order, so that no core waits for it at the end.
LONGEST_FIRST = ("memorization_task", "hull_task", "roberta_rank", "training_grid", "san_depth", "encoder_depth")

# Their content reaches a measurement as params or not at all, so a change of theirs alone measures nothing again.
WITHOUT_NUMBERS = ("progress.py", "validation.py", "config.py")


def start(raw: Mapping[str, Any], workflow: Any) -> tuple[Config, Catalogue, Places]:
    """Check everything a user wrote, or end with one line a mistake; set aside tensor files that cannot be read."""
    try:
        config, catalogue = check_config(raw), load_catalogue()
        _check_catalogue(catalogue)
        places = Places(Path(config.results))
        if workflow.is_main_process:
            check_writable(places.results)
            check_inputs(config.measurements)
            if not {"dryrun", "unlock", "lint"} & _asked():
                _set_aside_damaged(catalogue, places)
    except ConfigError as error:
        sys.exit(str(error))
    return config, catalogue, places


def check_targets(workflow: Any) -> None:
    """End with one line when a target on the command line is neither a file nor a rule.

    Snakemake itself looks for targets only after the workflow is read, and then speaks of missing rules.
    """
    known = sorted(rule.name for rule in workflow.rules if rule.name != "measure")
    for target in _command_line().targets if workflow.is_main_process else ():
        if "/" not in target and "." not in target and target not in known:
            sys.exit(f"target {target!r}: no such figure; {allowed(target, known)}")


def _command_line() -> Any:
    """Return snakemake's own reading of its command line; of an empty one where something else started the workflow."""
    from snakemake.cli import get_argument_parser  # loaded already where snakemake runs; heavy elsewhere

    started_by_snakemake = Path(sys.argv[0]).name in ("snakemake", "__main__.py")
    return get_argument_parser().parse_known_args(sys.argv[1:] if started_by_snakemake else [])[0]


def _asked() -> set[str]:
    """Return which switches are on."""
    return {name for name, value in vars(_command_line()).items() if value is True}


def measurement_settings(config: Config, name: str) -> dict[str, Any]:
    """Return a measurement's own slice of the configuration, and nothing else of it."""
    return plain(getattr(config.measurements, name))


def measurement_data(config: Config, name: str) -> list[str]:
    """Return the data files a measurement reads: those its settings name."""
    return input_files(getattr(config.measurements, name))


def priority(name: str) -> int:
    """Return the larger number the earlier a measurement is to start."""
    return len(LONGEST_FIRST) - LONGEST_FIRST.index(name) if name in LONGEST_FIRST else 0


def measurement_code(name: str) -> list[str]:
    """Return the modules whose change makes a measurement run again."""
    return _code(PACKAGE / "measurements" / f"{name}.py")


def notebook_code(figure: str) -> list[str]:
    """Return the modules whose change makes a figure be drawn again."""
    judge = PACKAGE / "judges" / f"{figure}.py"  # none where there is no claim to judge
    sources = [Path("notebooks") / f"{figure}.py", *([judge] if judge.is_file() else [])]
    return [*sorted({path for source in sources for path in _code(source)}), _short(PACKAGE / "house.mplstyle")]


def book_code() -> list[str]:
    """Return the modules and templates whose change makes the book be bound again."""
    return [*_code(PACKAGE / "book.py"), *map(_short, sorted((PACKAGE / "templates").iterdir()))]


def published_files(entry: Figure) -> list[Path]:
    """Return the published files a figure reads: those it must have, and those it may have that are there."""
    optional = (PUBLISHED / name for name in entry.published_if_there)
    return [*(PUBLISHED / name for name in entry.published), *(path for path in optional if path.is_file())]


def criteria(catalogue: Catalogue, figure: str) -> list[str]:
    """Return the criteria of a figure's claims as plain strings: a changed criterion judges again."""
    return [f"{name}: {catalogue.claims[name].rule}" for name in catalogue.figures[figure].claims]


def figure_files(catalogue: Catalogue, places: Places) -> list[Path]:
    """Return every file that the figures leave behind."""
    return [path for name, entry in catalogue.figures.items() for path in places.of_figure(name, entry.claims)]


def tensor_files(catalogue: Catalogue, places: Places) -> list[Path]:
    """Return the tensors of every measurement some figure reads."""
    names = sorted({name for entry in catalogue.figures.values() for name in entry.measurements})
    return [places.tensors(name) for name in names]


def clear_failures(places: Places) -> None:
    """Forget the failures of an earlier run."""
    for path in places.failures().glob("*.txt"):
        path.unlink()


def report_failures(places: Places) -> None:
    """Say last, one line each, what failed and where to read about it."""
    for path in sorted(places.failures().glob("*.txt")):
        print(path.read_text(encoding="utf-8").rstrip(), file=sys.stderr)


def report(places: Places) -> None:
    """Say where the book lies, if it is of what was drawn last, and how to see the verdicts, if there are any."""
    book = places.book("index.html")
    drawn = max((path.stat().st_mtime for path in places.notebook("").parent.glob("*.ipynb")), default=0)
    if book.is_file() and book.stat().st_mtime >= drawn:
        print(f"Book: {book} and {places.book('figure-book.pdf')}")
    if any(places.verdict("").parent.glob("*.json")):
        print(f"Verdicts: python -m rankcollapse {places.results}")


def _code(entry: Path) -> list[str]:
    found = package_imports(entry, PACKAGE)
    return [_short(path) for path in found if path.name not in WITHOUT_NUMBERS and path.parent.name != "settings"]


def _short(path: Path) -> str:
    """Return a path relative to the checkout, so that moving the checkout measures nothing again."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


RULES = ("all", "book", "measure")


def _check_catalogue(catalogue: Catalogue) -> None:
    """Refuse a figure whose measurement, notebook, judge or published file is not there."""
    for figure, entry in catalogue.figures.items():
        where = f"config/figures.yaml: {figure}"
        if figure in RULES:
            raise ConfigError(f"{where}: the name of a rule; allowed: any other")
        for name in entry.measurements:
            if name not in MEASUREMENTS:
                raise ConfigError(f"{where}: measurement {name!r}: {allowed(name, MEASUREMENTS)}")
        needed = [Path("notebooks") / f"{figure}.py", *(Path("resources/published") / name for name in entry.published)]
        needed += [PACKAGE / "judges" / f"{figure}.py"] if entry.claims else []
        for path in needed:
            if not path.is_file():
                raise ConfigError(f"{where}: needs {_short(path)}, which is not there")


def _set_aside_damaged(catalogue: Catalogue, places: Places) -> None:
    """Set aside tensor files that must not be read, and the notebooks drawn from tensors that are not there any more.

    Snakemake alone does not miss an intermediate file whose products exist: without the notebook it draws again, and
    for that it measures again.
    """
    for name in MEASUREMENTS:
        path = places.tensors(name)
        if path.is_file() and (reason := _damage(name, path)):
            path.replace(path.with_suffix(".damaged"))
            print(f"{reason}; kept as {path.with_suffix('.damaged')}, to be measured again", file=sys.stderr)
        if not path.is_file():
            for figure, entry in catalogue.figures.items():
                if name in entry.measurements:
                    places.notebook(figure).unlink(missing_ok=True)


def _damage(name: str, path: Path) -> str:
    """Return why a tensor file must not be read, or nothing."""
    from rankcollapse.store import StoreError, read  # numpy, only when there is something to read

    try:
        measurement = read(path).provenance.measurement
    except StoreError as error:
        return str(error)
    return "" if measurement == name else f"{path}: holds the tensors of {measurement}"
