"""``python -m rankcollapse [results]``: print the verdicts of a finished run and where its book lies."""

import sys
from pathlib import Path

from rankcollapse.catalogue import load_catalogue
from rankcollapse.places import Places
from rankcollapse.verdicts import Verdict, summary


def main(results: str = "results") -> None:
    """Print the table of verdicts and the paths of the two books."""
    places = Places(Path(results))
    try:
        files = [places.verdict(claim) for claim in load_catalogue().claims]
        verdicts = [Verdict.load(path) for path in files if path.is_file()]
    except ValueError as error:
        sys.exit(str(error))
    if not verdicts:
        sys.exit(f"{results}: no verdicts there; run snakemake first, or name the results folder of a run")
    print(summary(verdicts))
    for book in (places.book("index.html"), places.book("figure-book.pdf")):
        print(book if book.is_file() else f"{book}: not bound yet")


if __name__ == "__main__":
    main(*sys.argv[1:2])
