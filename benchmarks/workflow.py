"""Measure how fast the workflow itself is, and print a table: python benchmarks/workflow.py [--full]

Smoke reproduction from nothing, a run with nothing to do, one figure redrawn from cached tensors, and with --full the
whole run at published sizes, with the share of its wall time that is not measuring (start-up of jobs, notebooks, book)
and the largest memory of any job, from the jobs' own records. Everything happens in a temporary copy of the checkout.
"""

import argparse
import csv
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("Snakefile", "workflow", "profiles", "config", "notebooks", "resources", "src", "environment.yml")
SMOKE = ("--configfile", "config/smoke.yaml")


def copy(folder: Path) -> Path:
    """Copy what a run needs."""
    for part in PARTS:
        source = ROOT / part
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / part)
    return folder


def snakemake(folder: Path, *arguments: str) -> float:
    """Run snakemake and return its wall time in seconds."""
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    return time.perf_counter() - started


def records(results: Path, step: str) -> list[dict[str, str]]:
    """Return what snakemake recorded of the jobs of one step."""
    rows = []
    for path in sorted((results / "benchmarks" / step).glob("*.tsv")):
        with path.open(encoding="utf-8") as file:
            rows += [row | {"job": path.stem} for row in csv.DictReader(file, delimiter="\t")]
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also run everything at published sizes")
    parser.add_argument("--cores", default="2")
    options = parser.parse_args()
    cores = ("--cores", options.cores)
    with tempfile.TemporaryDirectory() as name:
        folder = copy(Path(name))
        table = {"smoke reproduction": f"{snakemake(folder, *cores, *SMOKE):.1f} s"}
        table["nothing to do"] = f"{snakemake(folder, *cores, *SMOKE):.1f} s"
        (folder / "notebooks/rebuttal_07.py").touch()
        table["rebuttal_07 redrawn"] = f"{snakemake(folder, *cores, 'rebuttal_07', *SMOKE):.1f} s"
        if options.full:
            wall = snakemake(folder, *cores)
            measured = records(folder / "results", "measure")
            everything = [row for step in ("measure", "draw", "book") for row in records(folder / "results", step)]
            busy = sum(float(row["s"]) for row in measured) / int(options.cores)
            table["published sizes"] = f"{wall:.0f} s"
            table["of it not measuring"] = f"{1 - busy / wall:.0%}"
            table["largest memory of a job"] = f"{max(float(row['max_rss']) for row in everything) / 1024:.1f} GiB"
            table |= {f"  {row['job']}": f"{float(row['s']):.0f} s" for row in measured}
    print(f"{platform.processor() or platform.machine()}, {options.cores} cores of {os.cpu_count()}")
    for name, value in table.items():
        print(f"{name:26} {value:>10}")


if __name__ == "__main__":
    main()
